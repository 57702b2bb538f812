"""Signals through the executor, compared with psql's COPY of the same rows.

COPY gets a table with the same columns, a primary key and the index that keeps duplicates out: what
signals need to be stored once. Every other index is ours to justify, so it counts against us.
"""

import asyncio
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.measure import JOBS_PER_SECOND, Figures, Tally
from bench.workloads.case import Case, Counted, drain, vacuum
from bench.workloads.data import add_connections
from syncline import Connection, Signal, SyncResult

SIGNALS_PER_SECOND = "signals/s"
COPIED_PER_SECOND = "psql COPY, rows/s"
BY_COPY = "÷ psql COPY"
OCCURRED_AT = datetime(2026, 1, 1, tzinfo=UTC)
BODY = {
    "title": "The export button does nothing",
    "state": "open",
    "labels": ["bug", "export", "customer"],
    "author": {"id": 4711, "login": "ada", "url": "https://tickets.example/users/4711"},
    "text": "When I press it, the page reloads and no file arrives. " * 5,
}


COPY_TABLE = """
    -- The columns of the signals, without indexes, checks and references.
    CREATE TABLE public.copied (LIKE syncline.signals INCLUDING DEFAULTS INCLUDING STORAGE)
"""
UNIQUE_INDEXES = """
    -- The primary key and the index by dedupe key, as statements for the copy.
    SELECT regexp_replace(pg_get_indexdef(indexrelid), 'INDEX .* ON .* USING',
                          'INDEX ON public.copied USING') AS statement
      FROM pg_index WHERE indrelid = 'syncline.signals'::regclass AND indisunique
"""


class WithSignals(Counted):
    """Returns a page of signals of about 500 bytes each."""

    def __init__(self, tally: Tally, a_job: int) -> None:
        super().__init__(tally.job)
        self._a_job = a_job

    async def sync(self, connection: Connection, cursor: Any) -> SyncResult:  # noqa: ARG002
        self.noted()
        return SyncResult(
            signals=[
                Signal("ticket_updated", OCCURRED_AT, BODY | {"number": number}, str(number))
                for number in range(self._a_job)
            ]
        )


async def ingest(case: Case) -> Figures:
    """Drain jobs that return signals; then COPY the same rows into another table."""
    jobs, a_job = case.size("jobs"), case.size("signals")
    tally = Tally(jobs)
    async with case.engine(WithSignals(tally, a_job)) as engine, case.session() as session:
        await add_connections(session, jobs)
        await engine.tick()
        await vacuum(session)
        figures = await drain(case, engine, tally)
        stored = await session.fetchval("SELECT count(*) FROM syncline.signals")
        assert stored == jobs * a_job, stored
        copied = await copy_again(case, session) / stored
    rate = figures[JOBS_PER_SECOND] * a_job
    compared = {SIGNALS_PER_SECOND: rate, COPIED_PER_SECOND: 1 / copied, BY_COPY: rate * copied}
    return compared | figures


async def copy_again(case: Case, session: Any) -> float:
    """Return the seconds that psql needs for the same rows, with only the unique indexes."""
    await create_copy(session)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "signals.txt"
        await _psql(case, f"\\copy syncline.signals TO '{file}'")
        began = time.perf_counter()
        await _psql(case, f"\\copy public.copied FROM '{file}'")
        return time.perf_counter() - began


async def create_copy(session: Any) -> None:
    await session.execute(COPY_TABLE)
    for index in await session.fetch(UNIQUE_INDEXES):
        await session.execute(index["statement"])


async def _psql(case: Case, command: str) -> None:
    arguments = ["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--command", command, case.url]
    process = await asyncio.create_subprocess_exec(case.psql, *arguments)
    assert await process.wait() == 0, command
