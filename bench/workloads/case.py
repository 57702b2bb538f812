"""One trial of a workload: its database, its options, and the engine it measures."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg

from bench.measure import Figures, Tally
from syncline import Connection, Connector, Engine, Settings, SyncResult

PROVIDER = "bench"
PROFILE = "BENCH_PROFILE"  # set if the server keeps statistics of its statements
PENDING = """
    SELECT EXISTS (SELECT FROM syncline.sync_jobs WHERE status IN ('queued', 'running'))
"""

RATE_OF_ROWS = """
    -- Jobs per second from the first start to the last end, of the jobs created since. Unlike a
    -- query for pending jobs during the drain, this costs the drain nothing.
    SELECT count(*) / extract(epoch FROM max(finished_at) - min(started_at))::float8
      FROM syncline.sync_jobs WHERE status = 'succeeded' AND created_at >= $1
"""


@dataclass(frozen=True)
class Case:
    """What the harness passes to a workload's process."""

    url: str
    psql: str
    options: dict[str, Any]

    def size(self, name: str) -> int:
        return int(self.options[name])

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Any]:
        """Open a separate connection, to prepare data and to read it."""
        session = await asyncpg.connect(self.url, command_timeout=1800)
        try:
            yield session
        finally:
            await session.close()

    @asynccontextmanager
    async def engine(
        self, connector: Connector, *, concurrency: int | None = None, **components: Any
    ) -> AsyncIterator[Engine]:
        """Open an engine on a migrated schema, with default settings except those given here.

        Without a concurrency, the trial's own counts; if that is None, the engine's default.
        """
        concurrency = concurrency or self.options.get("concurrency", 8000)
        executor = {} if concurrency is None else {"concurrency": concurrency}
        settings = Settings(database_url=self.url, executor=executor, **components)
        async with Engine(settings, connectors=[connector]) as engine:
            await engine.migrate()
            yield engine


class Counted(Connector):
    """A connector that does nothing but record that it was called."""

    provider = PROVIDER

    def __init__(self, noted: Callable[[], None]) -> None:
        self.noted = noted

    async def sync(self, connection: Connection, cursor: Any) -> SyncResult:  # noqa: ARG002
        self.noted()
        return SyncResult()


@asynccontextmanager
async def running(engine: Engine, **roles: bool) -> AsyncIterator[None]:
    """Run the engine's loops, as a deployed worker does, and stop them in order."""
    loops = asyncio.create_task(engine.run(**roles))
    try:
        yield
    finally:
        engine.stop()
        clean = await loops
    assert clean, "a job was left running"


async def drain(
    case: Case, engine: Engine, tally: Tally, *, at_most: float | None = None
) -> Figures:
    """Run what is queued and return the rates, from the first start to the last settlement."""
    async with case.session() as session:

        async def is_pending() -> bool:
            return bool(await session.fetchval(PENDING))

        await begin_measuring(session)
        async with running(engine, scheduler=False):
            return await tally.drained(is_pending, at_most=at_most)


async def begin_measuring(session: Any) -> None:
    """Reset the server's statistics, if it keeps them, to leave out the preparation."""
    if os.environ.get(PROFILE):
        await session.execute("SELECT pg_stat_statements_reset()")


async def vacuum(session: Any, tables: Iterable[str] = ("connections", "sync_jobs")) -> None:
    """Vacuum what the preparation left behind, and update the planner's statistics."""
    for table in tables:
        await session.execute(f"VACUUM ANALYZE syncline.{table}")
