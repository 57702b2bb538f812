"""A virtual day: two schedulers and three executors look after a hundred connections.

The clock stands still while they work and then jumps by four minutes; a provider of tickets fails,
limits, pages and repeats itself as scripted. In the end every rule is checked against the rows.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest

from support.interleaving import count_deadlocks
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
CONNECTIONS = 100
INTERVALS = (None, 1800, 3600, 5400, 7200)
DEFAULT_INTERVAL = 900
NEW_TICKET_EVERY = timedelta(minutes=10)
PAGE = 4
PAUSED_FROM, PAUSED_UNTIL = at("06:00"), at("09:00")


class Tickets(Connector):
    """A ticket service: one new ticket every ten minutes for each connection.

    What it does beyond that depends on the connection's number: 5 pages through a backlog, 6 is
    down now and then, 7 asks for a pause, 8 breaks in unexpected ways.
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
    assert runs > 2500
    assert await count_deadlocks(database_url, waiting=False) == deadlocks


def check_schedule(connection: Connection, jobs: list[Job]) -> None:
    """Every slot follows the last completion by whole intervals: by one, unless it was paused."""
    interval = timedelta(
        seconds=connection.metadata["sync"].get("interval_seconds", DEFAULT_INTERVAL)
    )
    planned = [job for job in jobs if job.slot_at is not None]
    for before, job in pairwise(planned):
        last = last_completion(jobs, before_slot=job)
        intervals, rest = divmod(slot_of(job) - last, interval)
        assert not rest
        paused = connection.external_id.endswith("9") and last < PAUSED_UNTIL <= slot_of(job) + DAY
        assert intervals == 1 or (paused and last <= PAUSED_UNTIL)
        jitter = job.scheduled_at - slot_of(job)
        assert timedelta() <= jitter <= interval / 5
        if job.attempts == 0 and job.started_at is not None:
            assert timedelta() <= job.started_at - job.scheduled_at < STEP or paused
        assert before.id < job.id
    slowest = interval * 1.2 + STEP
    assert len(planned) <= DAY / interval + 1
    if connection.external_id[-1] in "01234":
        assert len(planned) >= DAY / slowest


def last_completion(jobs: list[Job], *, before_slot: Job) -> datetime:
    """Return when the connection had last completed a run when the job was made."""
    made_before = [job for job in jobs if job.id < before_slot.id and job.finished_at is not None]
    counted = [job for job in made_before if job.started_at is not None]
    return max(job.finished_at for job in counted if job.finished_at is not None)


def slot_of(job: Job) -> datetime:
    assert job.slot_at is not None
    return job.slot_at


async def check_signals(day: Day, connection: Connection) -> None:
    """Every ticket up to the cursor is stored once, in order, and none beyond it."""
    engine = day.schedulers[0]
    cursor = (await engine.connections.get(connection.id)).metadata["sync"]["cursor"]
    stored = await engine.signals.list(connection_id=connection.id, limit=10_000)
    assert [signal.payload["number"] for signal in stored] == list(range(cursor + 1))
    newest = DAY // NEW_TICKET_EVERY
    assert newest - cursor <= timedelta(hours=3) / NEW_TICKET_EVERY
