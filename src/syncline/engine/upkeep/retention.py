"""Retention: remove finished jobs and old signals, in short batches with long pauses."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from syncline.clock import Clock, monotonic
from syncline.engine.upkeep.batch_size import BATCH_SECONDS, BatchSize
from syncline.engine.upkeep.heartbeat import Heartbeat
from syncline.engine.upkeep.job_walks import JobWalks, PruneReport
from syncline.engine.upkeep.storage_limit import StorageWalk
from syncline.settings import Settings
from syncline.store.data import audit, idempotency, retention
from syncline.store.pool import Pool, Transaction
from syncline.telemetry.upkeep import UpkeepTelemetry

ROUND_EVERY = timedelta(minutes=1)
# After a round with much to do. What is removed steadily leaves room that is used again steadily: a
# minute's worth at once made tables of eight minutes a fifth larger.
NEXT_ROUND_SOON = timedelta(seconds=10)
MEASURE_STORAGE_EVERY = timedelta(minutes=10)
# The pause after a batch, as a multiple of its duration: pruning takes at most 3 % of one session's
# time, in which it removes three times what a million connections leave every second.
PAUSE_FACTOR = 32


class Pruner:
    """Removes old rows, one batch per step.

    Only the process that started first does it. If two believe they are first, they do no harm:
    each skips rows that the other has locked.
    """

    def __init__(
        self,
        pool: Pool,
        settings: Settings,
        clock: Clock,
        heartbeat: Heartbeat,
        telemetry: UpkeepTelemetry,
    ) -> None:
        self._pool = pool
        self._settings = settings
        self._clock = clock
        self._heartbeat = heartbeat
        self._telemetry = telemetry
        self._job_walks = JobWalks(pool, clock, settings)
        self._signal_batch = BatchSize()
        self._round: Round | None = None
        self._measured_storage: float | None = None  # when, by this process's clock
        self._told = monotonic()

    async def prune(self) -> PruneReport:
        """Make one round over everything, without pauses; return what it removed."""
        report = PruneReport()
        walks = self._job_walks.over_everything(report)
        going = Round(report, [*walks, *self._other_walks(report), *self._storage_walk()])
        while await going.batch():
            pass
        self._telemetry.rows_pruned(report.counts())
        return report

    async def step(self) -> timedelta:
        """Remove a batch; return how long to pause."""
        if self._round is None:
            if not await self._heartbeat.is_first():
                return ROUND_EVERY
            self._round = await self._begin()
        began, more = monotonic(), True
        while more and monotonic() - began < BATCH_SECONDS / 2:  # a walk may have little to do
            more = await self._round.batch()
        if more:
            self._round.has_paused = True
            self._tell(self._round.report, at_most_every=ROUND_EVERY)
            return timedelta(seconds=PAUSE_FACTOR * (monotonic() - began))
        self._tell(self._round.report)
        had_much, self._round = self._round.has_paused, None
        return NEXT_ROUND_SOON if had_much else ROUND_EVERY

    def _tell(self, report: PruneReport, at_most_every: timedelta = timedelta()) -> None:
        """Record what was removed; a round that catches up with days does not end for long."""
        if monotonic() - self._told >= at_most_every.total_seconds():
            self._told = monotonic()
            self._telemetry.rows_pruned(report.take())

    async def _begin(self) -> "Round":
        report = PruneReport()
        walks: list[Walk] = [*await self._job_walks.go_on(report), *self._other_walks(report)]
        measured, now = self._measured_storage, monotonic()
        if measured is None or now - measured >= MEASURE_STORAGE_EVERY.total_seconds():
            self._measured_storage = now
            walks += self._storage_walk()
        return Round(report, walks)

    def _other_walks(self, report: PruneReport) -> "list[AgeWalk]":
        async def prune_signals(tx: Transaction, before: datetime, limit: int) -> int:
            removed = await retention.prune_signals(tx, before=before, limit=limit)
            report.signals += removed
            return removed

        async def forget_answers(tx: Transaction, before: datetime, limit: int) -> int:
            """Remove old idempotency records; a request removes only those of its own tenant."""
            return await idempotency.forget(tx, before=before, limit=limit)

        async def prune_audit(tx: Transaction, before: datetime, limit: int) -> int:
            removed = await audit.prune(tx, before=before, limit=limit)
            report.audit += removed
            return removed

        walks = [AgeWalk(self._pool, self._clock, idempotency.KEPT_FOR, forget_answers)]
        if (kept := self._settings.retention.audit) is not None:
            walks.append(AgeWalk(self._pool, self._clock, kept, prune_audit))
        if (kept := self._settings.retention.signals) is not None:
            size = self._signal_batch
            walks.insert(0, AgeWalk(self._pool, self._clock, kept, prune_signals, size))
        return walks

    def _storage_walk(self) -> list[StorageWalk]:
        limit = self._settings.api.max_stored_bytes_per_tenant
        if limit is None:
            return []
        return [StorageWalk(self._pool, self._clock, limit, self._telemetry)]


class Walk(Protocol):
    """Something to be done in batches."""

    async def batch(self) -> bool:
        """Do the next batch; return whether there may be more to do."""


class Round:
    """One round: jobs, then signals, idempotency records and the audit, then storage."""

    def __init__(self, report: PruneReport, walks: Sequence[Walk]) -> None:
        self.report = report
        self.has_paused = False
        self._walks = list(walks)

    async def batch(self) -> bool:
        """Do the next batch of the current walk; return whether there is more to do."""
        if self._walks and not await self._walks[0].batch():
            del self._walks[0]
        return bool(self._walks)


@dataclass(slots=True)
class AgeWalk:
    """Removes the oldest rows, one transaction per batch, until none is too old."""

    pool: Pool
    clock: Clock
    kept: timedelta
    remove: Callable[[Transaction, datetime, int], Awaitable[int]]
    size: BatchSize = field(default_factory=BatchSize)

    async def batch(self) -> bool:
        """Remove some rows; return whether there may be more."""
        began, limit = monotonic(), self.size.rows
        async with self.pool.transaction() as tx:
            removed = await self.remove(tx, await self.clock.now(tx) - self.kept, limit)
        self.size.learn(monotonic() - began, is_full=removed == limit)
        return removed == limit
