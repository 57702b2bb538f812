"""A Postgres that goes away, comes back, is full, or stores nothing."""

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress

import asyncpg

from faults.kinds import kind
from faults.stage import PATIENCE_SECONDS, Stage

OUTAGE_SECONDS, QUICK_OUTAGE_SECONDS = 60.0, 6.0
FULL_HOUSE_SECONDS = 4.0
REFUSAL_SECONDS = 3.0
REFUSE_LOGINS, ACCEPT_LOGINS = "ALTER ROLE syncline NOLOGIN", "ALTER ROLE syncline LOGIN"
LONG_LEASE_SECONDS = 60  # a lease that outlasts a refusal: nothing need lapse meanwhile


@kind("Postgres restarts", full=4)
async def restart(stage: Stage) -> None:
    """Costs only time: work continues within five seconds of its return."""
    await end_and_start(stage, stage.server.stop)


@kind("Postgres crashes", full=4)
async def crash(stage: Stage) -> None:
    """What was committed is there; the rest is done again."""
    await end_and_start(stage, stage.server.kill)


async def end_and_start(stage: Stage, end: Callable[[], None]) -> None:
    await asyncio.to_thread(end)
    await asyncio.to_thread(stage.server.start)
    await stage.measure_return(await stage.database.now())


@kind("Postgres unreachable, loudly", full=1)
async def refuse(stage: Stage) -> None:
    """Connections are reset and refused for a minute; no process gives up."""
    for process in stage.fleet.running():
        process.link.refuse()
    await outlast(stage)


@kind("Postgres unreachable, silently", full=1)
async def silence(stage: Stage) -> None:
    """For a minute, nothing arrives and nothing fails; every wait has its limit."""
    for process in stage.fleet.running():
        process.link.silence()
    await outlast(stage)


async def outlast(stage: Stage) -> None:
    # The outage is a length of time; there is no event to wait for.
    await asyncio.sleep(QUICK_OUTAGE_SECONDS if stage.is_quick else OUTAGE_SECONDS)
    back_at = await stage.database.now()
    for process in stage.fleet.running():
        await process.link.open()
    await stage.measure_return(back_at)


@kind("all sessions terminated", full=10)
async def terminate_sessions(stage: Stage) -> None:
    """Every pool finds new connections."""
    if not await stage.database.terminate_all_others():
        stage.record.complain("there were no sessions to terminate")


@kind("max_connections reached", full=2)
async def fill_up(stage: Stage) -> None:
    """Open sessions keep working; processes without one continue when there is room."""
    held = []
    try:
        with suppress(asyncpg.TooManyConnectionsError):
            while True:
                held.append(await asyncpg.connect(stage.database.url))
        await stage.database.terminate_all_others()
        with suppress(asyncpg.TooManyConnectionsError):
            while True:
                held.append(await asyncpg.connect(stage.database.url))
        await asyncio.sleep(FULL_HOUSE_SECONDS)
    finally:
        for session in held:
            session.terminate()


@kind("logins refused", full=3)
async def refuse_logins(stage: Stage) -> None:
    """Every session is ended and none can be opened for a while: costs only time."""
    await refuse_work(stage, REFUSE_LOGINS, ACCEPT_LOGINS)


@kind("a database that is read-only for a while", full=3)
async def become_read_only(stage: Stage) -> None:
    """Costs only time, although sessions opened meanwhile stay read-only."""
    name = await stage.database.value("SELECT quote_ident(current_database())")
    await refuse_work(
        stage,
        f"ALTER DATABASE {name} SET default_transaction_read_only = on",
        f"ALTER DATABASE {name} RESET default_transaction_read_only",
    )


async def refuse_work(stage: Stage, begin: str, end: str) -> None:
    """Let workers with long leases store nothing for a while; no attempt may be counted."""
    for worker in stage.fleet.running("worker"):
        worker.send(signal.SIGTERM)
    long_lease = {"EXECUTOR__LEASE_SECONDS": LONG_LEASE_SECONDS}
    workers = [await stage.fleet.start("worker", long_lease) for _ in range(2)]

    def all_work() -> bool:
        return all(stage.provider.calls_by(worker.pid) for worker in workers)

    await stage.until_its_turn(all_work, within=PATIENCE_SECONDS, what="workers with long leases")
    person = await asyncpg.connect(stage.database.url)  # this session survives the fault
    try:
        async with stage.costs_time_only():
            await person.execute(begin)
            await stage.database.terminate_all_others()
            await asyncio.sleep(REFUSAL_SECONDS)
            await person.execute(end)
            await stage.measure_return(await stage.database.now())
            await stage.until_all_go_on()
    finally:
        await person.execute(end)
        person.terminate()
        for worker in workers:
            worker.send(signal.SIGTERM)
