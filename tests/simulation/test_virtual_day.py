"""A virtual day: two schedulers and three executors look after forty connections.

The clock stands still while they work and then jumps by four minutes; a provider of tickets fails,
limits, pages and repeats itself as scripted. In the end every rule is checked against the rows.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from support.sessions import count_deadlocks
from support.world import at
from syncline import (
    Connection,
    Connector,
    Engine,
    RateLimited,
    Settings,
    Signal,
    SyncResult,
    Transient,
)
from syncline.model import Job
from syncline.testing import ManualClock

DAY, STEP = timedelta(hours=24), timedelta(minutes=4)
CONNECTIONS = 40
INTERVALS = (None, 1800, 3600, 5400, 7200)
DEFAULT_INTERVAL = 900
NEW_TICKET_EVERY = timedelta(minutes=10)
PAGE = 4
TOO_BUSY = ("7", "17")
HEALTHY = "012345"  # the last digits of those that never fail and are never paused
PAUSED_FROM, PAUSED_UNTIL = at("06:00"), at("09:00")


class Tickets(Connector):
    """A ticket service: one new ticket every ten minutes for each connection.

    A page ends after a few, and the next one repeats its last. Connections whose number ends in
    6 find the service down now and then, in 7 too busy, in 8 it breaks. It is too busy for two
    only: for three at once, it would mean that the service limits everybody.
    """

    provider = "tickets"

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._calls: Counter[UUID] = Counter()
        self.failures: Counter[str] = Counter()

    async def sync(self, connection: Connection, cursor: Any) -> SyncResult:
        self._calls[connection.id] += 1
        self._fail_as_scripted(connection)
        newest = (self._clock() - at("00:00")) // NEW_TICKET_EVERY
        first = cursor or 0
        page = range(first, min(first + PAGE, newest + 1))
        signals = [
            Signal("opened", at("00:00") + n * NEW_TICKET_EVERY, {"number": n}, dedupe_key=str(n))
            for n in page
        ]
        last = max(page[-1], first)  # which the next page repeats
        return SyncResult(signals, next_cursor=last, has_more=last < newest)

    def _fail_as_scripted(self, connection: Connection) -> None:
        call = self._calls[connection.id]
        trouble: dict[str, tuple[int, Exception]] = {
            "6": (3, Transient("down for a moment")),
            "7": (4, RateLimited("too many requests", retry_after_seconds=420)),
            "8": (5, ZeroDivisionError("a bug")),
        }
        every, error = trouble.get(connection.external_id[-1], (0, None))
        if isinstance(error, RateLimited) and connection.external_id not in TOO_BUSY:
            return
        if error is not None and call % every == 0:
            self.failures[type(error).__name__] += 1
            raise error


class Day:
    """The five engines and the day they live through."""

    def __init__(self, engines: list[Engine], clock: ManualClock, connector: Tickets) -> None:
        self.schedulers, self.executors = engines[:2], engines[2:]
        self.clock = clock
        self.connector = connector
        self.connections: list[Connection] = []

    async def live(self) -> None:
        for number in range(CONNECTIONS):
            await self._add(number)
        await self._work(everybody=True)
        for step in range(1, DAY // STEP + 1):
            self.clock.advance(seconds=STEP.total_seconds())
            await self._pause_and_resume()
            await self._work(everybody=step % 10 == 0, turn=step)
            if step % 30 == 0:
                assert await self.schedulers[0].verify() == []

    async def _add(self, number: int) -> None:
        self.connections.append(
            await self.schedulers[0].connections.create(
                tenant_id=f"tenant {number % 7}",
                provider_slug="tickets",
                external_id=str(number),
                interval_seconds=INTERVALS[number % len(INTERVALS)],
            )
        )

    async def _pause_and_resume(self) -> None:
        people = self.schedulers[1].connections
        for connection in self.connections:
            if connection.external_id.endswith("9"):
                if self.clock() == PAUSED_FROM:
                    await people.pause(connection.id)
                if self.clock() == PAUSED_UNTIL:
                    await people.resume(connection.id)

    async def _work(self, *, everybody: bool, turn: int = 0) -> None:
        """Tick and run: all five at once, or one of each kind in turn."""
        schedulers, executors = self.schedulers, self.executors
        if not everybody:
            schedulers, executors = [schedulers[turn % 2]], [executors[turn % 3]]
        await asyncio.gather(*(engine.tick() for engine in schedulers))
        await asyncio.gather(*(engine.run_due() for engine in executors))

    async def jobs_of(self, connection: Connection) -> list[Job]:
        """Return the connection's jobs in the order in which they were made."""
        jobs = await self.schedulers[0].jobs.list(connection_id=connection.id, limit=10_000)
        return sorted(jobs, key=lambda job: job.id)


@pytest.fixture
async def day(database_url: str) -> AsyncIterator[Day]:
    clock = ManualClock(at("00:00"))
    connector = Tickets(clock)
    settings = Settings(
        database_url=database_url,
        scheduler={"tick_interval_seconds": STEP.total_seconds()},
        pool_size=2,
    )
    async with AsyncExitStack() as stack:
        engines = [
            await stack.enter_async_context(
                Engine(settings, connectors=[connector], clock=clock, rng=random.Random(seed))
            )
            for seed in range(5)
        ]
        yield Day(engines, clock, connector)


async def test_a_day_in_the_life(day: Day, database_url: str) -> None:
    deadlocks = await count_deadlocks(database_url, waiting=False)
    await day.live()

    assert await day.schedulers[0].verify() == []
    assert set(day.connector.failures) == {"Transient", "RateLimited", "ZeroDivisionError"}
    runs = 0
    for connection in day.connections:
        jobs = await day.jobs_of(connection)
        assert {job.status for job in jobs} <= {"succeeded", "queued", "cancelled"}
        check_schedule(connection, jobs)
        await check_signals(day, connection)
        runs += len(jobs)
    assert runs > 1000
    assert await count_deadlocks(database_url, waiting=False) == deadlocks


def check_schedule(connection: Connection, jobs: list[Job]) -> None:
    """Once per interval + jitter: neither more often, nor, without failures, more seldom."""
    override = connection.metadata["sync"].get("interval_seconds")
    interval = timedelta(seconds=override or DEFAULT_INTERVAL)
    planned = [job for job in jobs if job.slot_at is not None]
    assert planned[0].slot_at == planned[0].started_at == at("00:00")
    for job in planned[1:]:
        check_run(job, last_completion(jobs, before=job), interval)
    assert len(planned) <= DAY / interval + 1
    if connection.external_id[-1] in HEALTHY:
        assert len(planned) >= DAY / (interval + interval / 5 + STEP)


def check_run(job: Job, last: datetime, interval: timedelta) -> None:
    """The slot is one interval after the last completion, the start within jitter and a step."""
    assert job.slot_at is not None
    returned = job.started_at is not None and last <= PAUSED_FROM < PAUSED_UNTIL <= job.started_at
    due_at = job.scheduled_at
    if returned:
        assert job.slot_at == last + max(1, (PAUSED_UNTIL - last) // interval) * interval
        due_at = max(due_at, PAUSED_UNTIL)
    else:
        assert job.slot_at == last + interval
    assert timedelta() <= job.scheduled_at - job.slot_at <= interval / 5
    if job.started_at is not None and job.attempts == 0:
        assert timedelta() <= job.started_at - due_at < STEP


def last_completion(jobs: list[Job], *, before: Job) -> datetime:
    """Return when the connection had last completed a run when the job was made."""
    earlier = [job for job in jobs if job.id < before.id and job.started_at is not None]
    return max(job.finished_at for job in earlier if job.finished_at is not None)


async def check_signals(day: Day, connection: Connection) -> None:
    """Every ticket up to the cursor is stored once, in order, and none beyond it."""
    engine = day.schedulers[0]
    cursor = (await engine.connections.get(connection.id)).metadata["sync"]["cursor"]
    stored = await engine.signals.list(connection_id=connection.id, limit=10_000)
    assert [signal.payload["number"] for signal in stored] == list(range(cursor + 1))
    newest = DAY // NEW_TICKET_EVERY
    assert newest - cursor <= timedelta(hours=3) / NEW_TICKET_EVERY
