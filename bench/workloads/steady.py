"""Ordinary operation for a while: many connections, each with its interval, one process."""

import asyncio
import time
from typing import Any

from bench.measure import Figures, cpu_seconds, resident_megabytes
from bench.workloads.case import Case, Counted, begin_measuring, running
from bench.workloads.data import INTERVAL_SECONDS, add_used_connections

LATENESS_P50, LATENESS_P99 = "lateness p50, s", "lateness p99, s"
FILLED_PER_SECOND = 5000  # how fast the preparation is assumed to be; the first slot comes after it
TABLES = ("connections", "sync_jobs")

LATENESS = """
    -- How late the jobs started that were due in the given time. The rate is that of its second
    -- half, because at first fewer are due, until the jitter of the first slots has spread.
    SELECT count(*) FILTER (WHERE due_at > $1 + ($2 - $1) / 2) AS jobs,
           percentile_cont(0.5) WITHIN GROUP (ORDER BY late) AS p50,
           percentile_cont(0.99) WITHIN GROUP (ORDER BY late) AS p99, max(late) AS worst
      FROM (SELECT scheduled_at AS due_at,
                   extract(epoch FROM coalesce(started_at, $2) - scheduled_at)::float8 AS late
              FROM syncline.sync_jobs
             WHERE scheduled_at BETWEEN $1::timestamptz AND $2::timestamptz) jobs
"""
SIZE = """
    SELECT pg_table_size($1::text::regclass) / 1e6::float8 AS heap,
           pg_indexes_size($1::text::regclass) / 1e6::float8 AS indexes
"""


async def steady_state(case: Case) -> Figures:
    """Run every loop for a while, and read from the rows how late the jobs started."""
    seconds, connections = case.size("seconds"), case.size("connections")
    ahead = connections / FILLED_PER_SECOND
    async with case.engine(Counted(lambda: None)) as engine, case.session() as session:
        filling = time.perf_counter()
        await add_used_connections(
            session,
            connections,
            slots=(ahead, ahead + INTERVAL_SECONDS),
            some_due=False,
        )
        before = await sizes(session, "start")
        await asyncio.sleep(max(filling + ahead - time.perf_counter(), 0))
        await begin_measuring(session)
        began_at = await session.fetchval("SELECT now()")
        began, cpu = time.perf_counter(), cpu_seconds()
        async with running(engine):
            await asyncio.sleep(seconds)
            ended_at = await session.fetchval("SELECT now()")
        cpu = (cpu_seconds() - cpu) / (time.perf_counter() - began)
        late = await session.fetchrow(LATENESS, began_at, ended_at)
        after = await sizes(session, "end")
    return {
        LATENESS_P50: late["p50"],
        LATENESS_P99: late["p99"],
        "lateness worst, s": late["worst"],
        "jobs/s": late["jobs"] / (seconds / 2),
        "client CPU, share of a core": cpu,
        "memory, MB": resident_megabytes(),
        **before,
        **after,
    }


async def sizes(session: Any, when: str) -> Figures:
    figures = {}
    for table in TABLES:
        size = await session.fetchrow(SIZE, f"syncline.{table}")
        figures[f"{table} at the {when}, MB"] = size["heap"]
        figures[f"indexes of {table} at the {when}, MB"] = size["indexes"]
    return figures
