"""Drains: no-op jobs, new cursors, slow connectors, finished jobs, backoffs, a snapshot, memory."""

import asyncio
import time
from typing import Any

from bench.measure import (
    ENQUEUED_PER_SECOND,
    JOBS_PER_SECOND,
    Figures,
    Tally,
    resident_megabytes,
)
from bench.workloads.case import RATE_OF_ROWS, Case, Counted, drain
from bench.workloads.data import (
    add_connections,
    add_finished_jobs,
    give_a_past,
    queue_after_outage,
    queue_jobs,
)
from syncline import Connection, Engine, SyncResult

SLEEP_SECONDS = 0.05
LAST_BY_FIRST = "last ÷ first cycle"
EMPTY_LOOK = "empty look, ms"
LOOKS = 9


class NewCursor(Counted):
    """Moves its cursor with every run."""

    async def sync(self, connection: Connection, cursor: Any) -> SyncResult:  # noqa: ARG002
        self.noted()
        return SyncResult(next_cursor={"since": "2026-01-01T00:00:00Z", "page": time.time_ns()})


class Slow(Counted):
    """Waits for an answer for a while, as most connectors do most of the time."""

    async def sync(self, connection: Connection, cursor: Any) -> SyncResult:  # noqa: ARG002
        self.noted()
        await asyncio.sleep(SLEEP_SECONDS)
        return SyncResult()


async def no_op(case: Case) -> Figures:
    """Enqueue with one tick, then drain; each job has its own connection."""
    return await tick_and_drain(case, Counted)


async def cursor(case: Case) -> Figures:
    """The same, with a new cursor for every connection."""
    return await tick_and_drain(case, NewCursor)


async def slow(case: Case) -> Figures:
    """Many connectors that wait at once; compare the rate with the ideal one."""
    figures = await tick_and_drain(case, Slow)
    ideal = case.size("concurrency") / SLEEP_SECONDS
    return figures | {"÷ ideal": figures[JOBS_PER_SECOND] / ideal}


async def finished(case: Case) -> Figures:
    """A drain in a table that holds many finished jobs."""
    return await tick_and_drain(case, Counted, finished_jobs=case.size("finished"))


async def tick_and_drain(case: Case, kind: type[Counted], *, finished_jobs: int = 0) -> Figures:
    if case.options.get("random_ids"):
        return await drain_shuffled(case, kind)
    count = case.size("jobs")
    tally = Tally(count)
    async with case.engine(kind(tally.job)) as engine, case.session() as session:
        await add_connections(session, count)
        if finished_jobs:
            await add_finished_jobs(session, finished_jobs)
        began = time.perf_counter()
        report = await engine.tick()
        enqueued = time.perf_counter() - began
        assert report.scheduled == count, report
        await give_a_past(session)
        figures = await drain(case, engine, tally)
        assert await engine.verify() == []
    return figures | {ENQUEUED_PER_SECOND: count / enqueued}


async def drain_shuffled(case: Case, kind: type[Counted]) -> Figures:
    """The same with random ids of the connections, and due times in no order."""
    tally = Tally(case.size("jobs"))
    async with case.engine(kind(tally.job)) as engine, case.session() as session:
        await add_connections(session, tally.expected, random_ids=True)
        await queue_jobs(session, shuffled=True)
        await give_a_past(session)
        return await drain(case, engine, tally)


async def backoff(case: Case) -> Figures:
    """Drain what an outage left behind: fresh jobs, or jobs whose backoff has ended."""
    tally = Tally(case.size("jobs"))
    async with case.engine(Counted(tally.job)) as engine, case.session() as session:
        await add_connections(session, tally.expected)
        await give_a_past(session)
        await queue_after_outage(session, has_failed=case.options["ended"])
        return await drain(case, engine, tally, at_most=case.options["seconds"])


async def snapshot(case: Case) -> Figures:
    """Several drains in a row, with or without an old snapshot held open.

    The snapshot is older than every row, so nothing that the drains leave behind can be removed.
    """
    async with case.session() as reader:
        held = reader.transaction(isolation="repeatable_read")
        await held.start()
        if case.options["held"]:
            await reader.fetchval("SELECT 1")
        rates, look = await _cycles(case)
        await held.rollback()
    return {JOBS_PER_SECOND: rates[-1], LAST_BY_FIRST: rates[-1] / rates[0], EMPTY_LOOK: look}


async def _cycles(case: Case) -> tuple[list[float], float]:
    """Return the rate of each drain, and the milliseconds of a claim that finds nothing."""
    connector = Counted(lambda: None)
    rates = []
    async with case.engine(connector) as engine, case.session() as session:
        await add_connections(session, case.size("jobs"))
        await give_a_past(session)
        for _ in range(case.size("cycles")):
            began_at = await session.fetchval("SELECT now()")
            await queue_and_drain(case, engine, connector, session)
            # By the rows: beside an old snapshot, a query for pending jobs takes long by itself.
            rates.append(await session.fetchval(RATE_OF_ROWS, began_at))
        looks = []
        for _ in range(LOOKS):
            began = time.perf_counter()
            await engine.run_due()
            looks.append((time.perf_counter() - began) * 1000)
    return rates, sorted(looks)[LOOKS // 2]


async def memory(case: Case) -> Figures:
    """The memory of the process after some jobs, and after many more."""
    connector = Counted(lambda: None)
    held: list[float] = []
    async with case.engine(connector) as engine, case.session() as session:
        await add_connections(session, case.size("jobs"))
        await give_a_past(session)
        for _ in range(case.size("cycles")):
            await queue_and_drain(case, engine, connector, session)
            held.append(resident_megabytes())
    return {"MB, early": held[0], "MB, late": held[-1], "late ÷ early": held[-1] / held[0]}


async def queue_and_drain(case: Case, engine: Engine, connector: Counted, session: Any) -> Figures:
    tally = Tally(case.size("jobs"))
    connector.noted = tally.job
    await queue_jobs(session)
    return await drain(case, engine, tally)
