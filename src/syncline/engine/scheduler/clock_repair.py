"""Correct the times that were stored while the database's clock was ahead."""

import asyncio
from datetime import UTC, datetime, timedelta

from syncline.engine.context import EngineContext
from syncline.store.pool import Transaction
from syncline.store.queue import jobs, schedule, schedulers
from syncline.store.queue.jobs import Latest

AFTERMATH = timedelta(minutes=1)  # longer than a transaction of ours lasts
NEVER = datetime.min.replace(tzinfo=UTC)


class ClockRepair:
    """Detects that the clock was ahead, and corrects the times that were written meanwhile."""

    def __init__(self, context: EngineContext, stopping: asyncio.Event) -> None:
        settings = context.settings
        self._pool = context.pool
        self._clock = context.clock
        self._lookahead = settings.scheduler.lookahead
        self._batch_size = settings.scheduler.batch_size
        rules = settings.scheduler.rules
        self._longest_interval = max(rules.default_interval, rules.maximum_interval)
        self._longest_backoff = settings.rate_limit.longest_backoff
        self._lease = settings.executor.lease
        self._stopping = stopping
        self._stood_at = self._aftermath_ends_at = NEVER  # the time that it showed

    async def begin_tick(self) -> datetime:
        """Correct times that are too far ahead, then return the time of this tick."""
        async with self._pool.transaction() as tx:
            now = await self._clock.now(tx)
            ahead_of = await self._find_ahead(tx, now)
        if ahead_of is not None:
            await self._bring_back(now, ahead_of)
        return now

    async def _find_ahead(self, tx: Transaction, now: datetime) -> datetime | None:
        """Return the time after which checks must be brought back; None if the clock was right.

        A scheduler with a tick in the future shows that the clock was ahead. Even without one,
        connections whose check is further off than two of the longest intervals are brought back. A
        row may be locked at that moment, or written by a transaction that began ahead and commits
        later. So for a minute, everything closer to that time than to now is brought back again.
        """
        horizon, size = now + self._lookahead, self._batch_size
        longest = self._longest_interval
        found = await schedule.bring_checks_back(tx, after=horizon + 2 * longest, limit=size)
        stood_at = await schedulers.ticked_ahead(tx, after=horizon)
        if stood_at is not None:
            self._stood_at, self._aftermath_ends_at = stood_at, now + AFTERMATH
        if stood_at is not None or found == size:
            return horizon
        is_aftermath = now < self._aftermath_ends_at
        return max(horizon, now + (self._stood_at - now) / 2) if is_aftermath else None

    async def _bring_back(self, now: datetime, ahead_of: datetime) -> None:
        """Bring back checks, jobs and ticks that lie in the future, batch by batch."""
        horizon, size = now + self._lookahead, self._batch_size
        latest = Latest(horizon, now + self._longest_backoff, now + self._lease)
        found = size
        while found == size and not self._stopping.is_set():
            async with self._pool.transaction() as tx:
                found = await schedule.bring_checks_back(tx, after=ahead_of, limit=size)
        found = size
        while found == size and not self._stopping.is_set():
            async with self._pool.transaction() as tx:
                found = await jobs.pull_back(tx, latest, now=now, limit=size)
        async with self._pool.transaction() as tx:
            await schedulers.come_back(tx, after=horizon, now=now)
