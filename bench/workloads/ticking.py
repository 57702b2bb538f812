"""The scheduler: how many connections a tick plans, and what an empty tick costs."""

import asyncio
import json
import logging
import time
from statistics import median
from typing import Any

from bench.measure import Figures
from bench.workloads.case import Case, Counted, begin_measuring, running, vacuum
from bench.workloads.data import INTERVAL_SECONDS, Past, add_used_connections
from syncline import Engine

SCHEDULER = logging.getLogger("syncline.scheduler")
SCHEDULED_PER_SECOND = "scheduled/s"
LOOP_PER_SECOND = "per-row loop, scheduled/s"
BY_LOOP = "÷ per-row loop"
EMPTY_TICK = "empty tick, ms"
EMPTY_TICK_AFTER = "empty tick after a busy one, ms"
EMPTY_TICKS = 9
NOT_DUE = (600, 880)  # seconds ahead, to leave enough time for the preparation

LOCK_ONE = """
    SELECT id, tenant_id, provider_slug FROM syncline.connections
     WHERE status = 'active' AND look_at <= now() ORDER BY look_at, id LIMIT 1
       FOR UPDATE SKIP LOCKED
"""
LAST_FINISH = """
    SELECT max(finished_at) FROM syncline.sync_jobs WHERE connection_id = $1
"""
INSERT_ONE = """
    INSERT INTO syncline.sync_jobs (tenant_id, provider_slug, connection_id, scheduled_at, slot_at)
    VALUES ($1, $2, $3, $4, $4) ON CONFLICT DO NOTHING
"""
SAVE_ONE = """
    UPDATE syncline.connections
       SET metadata = jsonb_set(metadata, '{sync}', metadata -> 'sync' || $2::jsonb),
           look_at = look_at + make_interval(secs => $3), updated_at = now()
     WHERE id = $1
"""


async def tick(case: Case) -> Figures:
    """One connection in ten is due: a per-row loop takes a few of them, a tick the rest."""
    async with case.engine(Counted(lambda: None)) as engine, case.session() as session:
        await add_used_connections(
            session,
            case.size("connections"),
            Past(NOT_DUE, some_due=True),
            in_backoff=case.size("backoff"),
        )
        few = min(case.size("loop"), case.size("connections") // 50)  # a fifth of what is due
        by_loop = await per_row_loop(session, few)
        await begin_measuring(session)
        rate = await first_tick(engine)
        figures = {SCHEDULED_PER_SECOND: rate, LOOP_PER_SECOND: by_loop, BY_LOOP: rate / by_loop}
        figures[EMPTY_TICK_AFTER] = await empty_tick(engine)
        await vacuum(session)
        figures[EMPTY_TICK] = await empty_tick(engine)
    return figures


class TickHeard(logging.Handler):
    """Waits for the log event of the next tick."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.told: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    def emit(self, record: logging.LogRecord) -> None:
        if vars(record).get("event") == "scheduler.tick" and not self.told.done():
            self.told.set_result(vars(record))


async def first_tick(engine: Engine) -> float:
    """Return how many connections per second a starting scheduler plans."""
    heard = TickHeard()
    SCHEDULER.addHandler(heard)
    SCHEDULER.setLevel(logging.INFO)
    async with running(engine, executor=False):
        tick = await heard.told
    SCHEDULER.removeHandler(heard)
    SCHEDULER.setLevel(logging.NOTSET)
    rate: float = tick["scheduled"] / tick["milliseconds"] * 1000
    return rate


async def empty_tick(engine: Engine) -> float:
    """Return the median milliseconds of several ticks that find nothing due."""
    took = []
    for _ in range(EMPTY_TICKS):
        began = time.perf_counter()
        report = await engine.tick()
        took.append((time.perf_counter() - began) * 1000)
        assert report.scheduled == 0, report
    return median(took)


async def per_row_loop(session: Any, count: int) -> float:
    """Return how many connections per second a scheduler plans that takes one row at a time."""
    patch = json.dumps({"next_run_at": "2026-01-01T00:00:00Z", "last_jitter_seconds": 0})
    began = time.perf_counter()
    for _ in range(count):
        async with session.transaction():
            due = await session.fetchrow(LOCK_ONE)
            last = await session.fetchval(LAST_FINISH, due["id"])
            key = (due["tenant_id"], due["provider_slug"], due["id"])
            await session.execute(INSERT_ONE, *key, last)
            await session.execute(SAVE_ONE, due["id"], patch, float(INTERVAL_SECONDS))
    return count / (time.perf_counter() - began)
