"""One run: set the stage, inject the faults in an order that the seed decides, and judge."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from random import Random
from urllib.parse import parse_qs, urlsplit

from rich.console import Console

from faults.database import Database
from faults.fleet import Fleet
from faults.kinds import Kind
from faults.monitor import Monitor
from faults.provider import Provider
from faults.record import Injection, Record
from faults.stage import NotFound, Stage
from faults.verdict import Verdict, judge
from faults.waiting import TooLate, until
from syncline import Engine, Settings
from syncline.testing.database import TemporaryServer

WORKERS, SCHEDULERS = 4, 2
NEWCOMER_EVERY_SECONDS = 5
INJECTION_SECONDS = 180
QUIET_SECONDS = 90
# Commits must survive a crash of the server; a crash of the machine is not simulated.
DURABLE = {"synchronous_commit": "on", "max_connections": "150"}


def plan(catalogue: Mapping[str, Kind], rng: Random, *, quick: bool) -> list[Kind]:
    """Return the injections of a run, in an order that the seed decides."""
    kinds = [kind for kind in catalogue.values() for _ in range(kind.quick if quick else kind.full)]
    rng.shuffle(kinds)
    return kinds


async def run(
    injections: Sequence[Kind], rng: Random, folder: Path, console: Console, *, quick: bool
) -> tuple[Record, Verdict]:
    async with open_stage(rng, folder, quick=quick) as stage:
        await stage.add_live_streams()
        await stage.fleet.stand(workers=WORKERS, schedulers=SCHEDULERS)
        await stage.heal()
        async with stage.newcomers(every=NEWCOMER_EVERY_SECONDS):
            for number, kind in enumerate(injections, start=1):
                before = len(stage.record.complaints)
                took = await inject(stage, kind)
                console.print(
                    f"{stage.record.now():6.1f} s  {number:3}/{len(injections)}"
                    f"  {kind.name}  [dim]{took:.1f} s[/dim]",
                    highlight=False,
                )
                for complaint in stage.record.complaints[before:]:
                    console.print(complaint, style="red", highlight=False, markup=False)
        await become_quiet(stage)
        return stage.record, await judge(stage)


async def inject(stage: Stage, kind: Kind) -> float:
    """Inject a fault, wait for its end, and heal; return how long that took."""
    record = stage.record
    began = record.now()
    try:
        async with asyncio.timeout(INJECTION_SECONDS):
            await kind.inject(stage)
    except NotFound as missing:
        record.absent[kind.name] = str(missing)
        return 0
    except (Exception, TimeoutError) as error:
        record.complain(f"{kind.name}: {type(error).__name__}: {error}")
    await stage.heal()
    stage.sort_overlaps(loses_claims=kind.loses_claims)
    record.injections.append(Injection(kind.name, kind.family, began, record.now()))
    return record.now() - began


async def become_quiet(stage: Stage) -> None:
    """Stop new records, and wait until all existing ones are stored."""
    stage.provider.freeze()
    heads = {name: stream.head() for name, stream in stage.provider.streams.items()}

    async def behind() -> list[str]:
        cursors = await stage.database.cursors()
        return [name for name, cursor in cursors.items() if cursor != heads.get(name, cursor)]

    async def nobody_is_behind() -> bool:
        return not await behind()

    try:
        await until(nobody_is_behind, within=QUIET_SECONDS, what="every record is stored")
    except TooLate:
        stage.record.complain(f"never caught up: {', '.join(await behind())}")


@contextlib.asynccontextmanager
async def open_stage(rng: Random, folder: Path, *, quick: bool) -> AsyncIterator[Stage]:
    """Start everything but the fleet; at the end, stop all of it, whatever happened."""
    async with contextlib.AsyncExitStack() as resources:
        server = TemporaryServer(server_settings=DURABLE)
        resources.push_async_callback(asyncio.to_thread, server.close)
        await asyncio.to_thread(server.start)
        url = await asyncio.to_thread(server.create_database)
        chosen = {"database_url": url, "scheduler": {"tick_interval_seconds": 1}}
        engine = await resources.enter_async_context(Engine(Settings(**chosen)))
        await engine.migrate()
        database = Database(url)
        resources.callback(database.close)
        await database.install_instruments()
        provider = Provider(Random(rng.random()))
        await provider.open()
        resources.callback(provider.close)
        parts = urlsplit(url)
        upstream = f"{parse_qs(parts.query)['host'][0]}/.s.PGSQL.{parse_qs(parts.query)['port'][0]}"
        fleet = Fleet(parts.path.removeprefix("/"), upstream, provider.url, folder)
        resources.callback(fleet.close)
        record = Record()
        monitor = Monitor(url, record)
        resources.callback(monitor.close)
        watching = asyncio.create_task(monitor.run())
        resources.callback(watching.cancel)
        stage = Stage(server, provider, fleet, database, engine, record, rng, folder, quick)
        yield stage
        if stage.server is not server:  # a standby has taken its place
            await asyncio.to_thread(stage.server.close)
