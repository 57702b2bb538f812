"""What one case works with: a database, a provider in a process of its own, and workers."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import asyncpg
from bench.workloads.data import fill
from faults.database import Database
from faults.process import ROOT, Process, environment_of, spawn
from faults.waiting import until

from fairness.connector import NAP_VARIABLE, URLS_VARIABLE
from fairness.plot import Plot

PATIENCE_SECONDS = 60
MOST_JOBS = 10_000_000  # of tenants with one name
LONGEST_ANSWER_BYTES = 2**27
SETTINGS: dict[str, object] = {
    "API__PORT": 0,
    "POOL_SIZE": 4,
    "EXECUTOR__CONCURRENCY": 20,
    "EXECUTOR__LEASE_SECONDS": 6,
    "EXECUTOR__SHUTDOWN_GRACE_SECONDS": 1,
    "SCHEDULER__TICK_INTERVAL_SECONDS": 5,
    "SCHEDULER__JITTER_PCT_MAX": 0,
    "SCHEDULER__DEFAULT_INTERVAL_SECONDS": 60,
    "HTTP__ALLOW_PRIVATE": "*",
    "HTTP__TIMEOUT_SECONDS": 5,
}

ADD_CONNECTIONS = """
    -- Connections of one tenant; their slots come within $5 seconds, or all at once, after $6.
    INSERT INTO syncline.connections (tenant_id, provider_slug, external_id, last_finished_at)
    SELECT $2, $3, $2 || '-' || n,
           now() + make_interval(secs => $6::float8 - $4::float8 + n * $5::float8 / $1)
      FROM generate_series(1, $1::int) n
"""

QUEUE_JOBS = """
    -- Connections that no tick looks at today, of so many tenants in turn ($2), with one job each.
    WITH added AS (
        INSERT INTO syncline.connections (id, tenant_id, provider_slug, external_id, look_at)
        SELECT pg_temp.ordered_id(30, $4::bigint + n), $3 || '-' || n % $2::int, 'nap',
               $3 || '-' || n, now() + interval '1 day'
          FROM generate_series(1, $1::int) n
     RETURNING id, tenant_id, provider_slug
    )
    INSERT INTO syncline.sync_jobs (id, tenant_id, provider_slug, connection_id)
    SELECT pg_temp.ordered_id(0, $4::bigint + row_number() OVER ()), tenant_id, provider_slug, id
      FROM added
"""

REMEMBER_STARTS = """
    -- A history of starts, as if the fleet had run for twenty minutes until $3 seconds ago.
    INSERT INTO syncline.provider_starts (provider_slug, minute, starts)
    SELECT $1, date_trunc('minute', now() - make_interval(secs => $3::float8))
               - n * interval '1 minute', $2::float8 * 60
      FROM generate_series(0, 19) n
"""


class Call(NamedTuple):
    """A call as the provider saw it."""

    at: float
    connection: str
    page: int
    status: int


class Provider:
    """The counting provider, as the suite sees it."""

    def __init__(self, process: asyncio.subprocess.Process, ports: Mapping[str, int]) -> None:
        self._process = process
        self._one_at_a_time = asyncio.Lock()
        self.urls = {name: f"http://127.0.0.1:{port}/" for name, port in ports.items()}

    @classmethod
    async def start(cls, applications: Sequence[str]) -> "Provider":
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "fairness.provider", *applications),
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LONGEST_ANSWER_BYTES,
        )
        assert process.stdout is not None
        return cls(process, json.loads(await process.stdout.readline()))

    async def order(self, application: str, what: str, **arguments: object) -> Any:
        """Have something done by an application; return its answer."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        async with self._one_at_a_time:
            stdin.write(json.dumps([application, what, arguments]).encode() + b"\n")
            return json.loads(await stdout.readline())

    async def calls(self, application: str, first: int = 0) -> list[Call]:
        return [Call(*call) for call in await self.order(application, "tell", first=first)]

    async def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()


@dataclass(frozen=True, slots=True)
class Run:
    """What all cases of a run share."""

    folder: Path
    seed: int
    is_quick: bool
    create_database: Callable[[], Awaitable[str]]


@dataclass(slots=True)
class Stage:
    run: Run
    url: str
    folder: Path
    rng: Random
    provider: Provider
    plots: list[Plot] = field(default_factory=list)
    settings: dict[str, object] = field(default_factory=dict)
    nap_seconds: float = 0.05
    processes: list[Process] = field(default_factory=list)
    database: Database = field(init=False)

    def __post_init__(self) -> None:
        self.database = Database(self.url)

    @property
    def is_quick(self) -> bool:
        return self.run.is_quick

    def beside(self, name: str) -> contextlib.AbstractAsyncContextManager["Stage"]:
        """Open another stage, with a database and workers of its own, to compare with."""
        return open_stage(self.run, f"{self.folder.name}-{name}")

    async def add_connections(
        self,
        count: int,
        tenant: str,
        provider: str,
        *,
        interval_seconds: float = 60,
        spread_seconds: float = 0,
        after_seconds: float = 0,
    ) -> None:
        """Add connections that come due at once, or evenly within a time."""
        times = [float(one) for one in (interval_seconds, spread_seconds, after_seconds)]
        await self.database.fetch(ADD_CONNECTIONS, count, tenant, provider, *times)

    async def queue_jobs(self, wanted: Mapping[str, tuple[int, int]]) -> None:
        """Queue jobs that are due now: by the tenants' name, how many tenants and jobs."""
        session = await asyncpg.connect(self.url)
        try:
            for number, (name, (tenants, jobs)) in enumerate(wanted.items()):
                await fill(session, QUEUE_JOBS, jobs, tenants, name, number * MOST_JOBS)
            await session.execute("VACUUM ANALYZE")
        finally:
            await session.close()

    async def remember_starts(self, provider: str, rate: float, *, ago_seconds: float = 0) -> None:
        """Give a provider a usual rate, which needs ten minutes of history."""
        await self.database.fetch(REMEMBER_STARTS, provider, rate, float(ago_seconds))

    def start(self, count: int = 1) -> None:
        """Start processes that schedule and work."""
        for _ in range(count):
            log = self.folder / f"{len(self.processes) + 1:02}.log"
            log.unlink(missing_ok=True)  # an earlier run's
            command = [sys.executable, "-m", "syncline", "run", "--connectors"]
            popen = spawn([*command, "fairness.connector"], self.environment(), log)
            self.processes.append(Process("worker", popen, log))

    def environment(self) -> dict[str, str]:
        settings = {"DATABASE_URL": self.url, **SETTINGS, **self.settings}
        return {
            **environment_of(settings),
            URLS_VARIABLE: json.dumps(self.provider.urls),
            NAP_VARIABLE: str(self.nap_seconds),
        }

    def running(self) -> list[Process]:
        return [process for process in self.processes if process.is_running]

    def kill_one(self) -> None:
        """Kill a process without warning, and start another in its place."""
        self.rng.choice(self.running()).kill()
        self.start()

    async def kill_every(self, seconds: float, *, until_at: float) -> None:
        """Kill a process now and then, until this time of the loop."""
        loop = asyncio.get_running_loop()
        while loop.time() + seconds < until_at:
            await asyncio.sleep(seconds)
            self.kill_one()
        await asyncio.sleep(max(0.0, until_at - loop.time()))

    async def command(self, *arguments: str) -> str:
        """Run a command of the command line; return what it printed."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "syncline", "--connectors", "fairness.connector", *arguments),
            cwd=self.folder,
            env=self.environment(),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        printed, _ = await process.communicate()
        if process.returncode:
            raise CommandFailed(f"syncline {' '.join(arguments)}: {printed.decode()}")
        return printed.decode()

    async def until_called(self, application: str, calls: int = 1) -> None:
        async def is_called() -> bool:
            return len(await self.provider.calls(application)) >= calls

        await until(is_called, within=PATIENCE_SECONDS, what=f"{calls} calls of {application}")

    async def value(self, statement: str, *arguments: object) -> Any:
        return await self.database.value(statement, *arguments)

    def complaints(self) -> list[str]:
        """Return what the logs show of exceptions that are no connector's."""
        return [
            f"{one.log.name}: {one.tail()[-400:]}" for one in self.processes if one.has_failed()
        ]

    async def close(self) -> None:
        for process in self.running():
            process.kill()
        for process in self.processes:
            await asyncio.to_thread(process.wait)
        self.database.close()
        await self.provider.close()


class CommandFailed(Exception):
    """A command of the command line ended with an error."""


@contextlib.asynccontextmanager
async def open_stage(run: Run, name: str, applications: Sequence[str] = ()) -> AsyncIterator[Stage]:
    folder = run.folder / name.replace(" ", "-")
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    provider = await Provider.start(applications)
    stage = Stage(run, await run.create_database(), folder, Random(run.seed), provider)
    try:
        yield stage
    finally:
        await stage.close()
