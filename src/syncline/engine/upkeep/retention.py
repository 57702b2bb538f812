"""Retention: remove finished jobs and old signals, in small batches with pauses between them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from syncline.clock import Clock, monotonic
from syncline.engine.upkeep.heartbeat import Heartbeat
from syncline.engine.upkeep.storage_limit import StorageWalk
from syncline.settings import RetentionSettings, Settings
from syncline.store.data import idempotency, retention
from syncline.store.pool import Pool, Transaction
from syncline.telemetry.upkeep import UpkeepTelemetry

CONNECTIONS_A_BATCH = 500
ROWS_A_BATCH = 500
ROUND_EVERY = timedelta(minutes=10)
PAUSE_FACTOR = 4  # the pause after a batch, as a multiple of its duration
BEGINNING = UUID(int=0)


@dataclass(slots=True)
class PruneReport:
    """What one round removed."""

    jobs: int = 0
    signals: int = 0


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
        self._round: Round | None = None

    async def prune(self) -> PruneReport:
        """Make one round without pauses; return what it removed."""
        going = self._begin()
        while await self._go_on(going):
            pass
        return going.report

    async def step(self) -> timedelta:
        """Remove a batch; return how long to pause."""
        if self._round is None:
            if not await self._heartbeat.is_first():
                return ROUND_EVERY
            self._round = self._begin()
        began = monotonic()
        if await self._go_on(self._round):
            return timedelta(seconds=PAUSE_FACTOR * (monotonic() - began))
        self._round = None
        return ROUND_EVERY

    def _begin(self) -> "Round":
        going = Round(self._pool, self._settings.retention, self._clock)
        if (limit := self._settings.api.max_stored_bytes_per_tenant) is not None:
            going.walks.append(StorageWalk(self._pool, self._clock, limit, self._telemetry))
        return going

    async def _go_on(self, going: "Round") -> bool:
        """Remove a batch; return whether there may be more."""
        if await going.batch():
            return True
        self._telemetry.rows_pruned(going.report.jobs, going.report.signals)
        return False


class Round:
    """One round: jobs by connection, then signals, then idempotency records, then storage."""

    def __init__(self, pool: Pool, settings: RetentionSettings, clock: Clock) -> None:
        self.report = PruneReport()
        self.walks: list[Walk | StorageWalk] = []
        if settings.jobs_days is not None:
            self.walks.append(Walk(pool, clock, settings.jobs_days, self._prune_jobs))
        if settings.signals_days is not None:
            self.walks.append(Walk(pool, clock, settings.signals_days, self._prune_signals))
        self.walks.append(Walk(pool, clock, idempotency.KEPT_FOR.days, self._forget_answers))

    async def batch(self) -> bool:
        """Do the next batch of the current walk; return whether there is more to do."""
        if self.walks and not await self.walks[0].batch():
            del self.walks[0]
        return bool(self.walks)

    async def _prune_jobs(self, tx: Transaction, after: UUID, before: datetime) -> UUID | None:
        """Prune the next connections by id; return the last id, or None at the end."""
        visited = await retention.next_connections(tx, after=after, limit=CONNECTIONS_A_BATCH)
        await retention.keep_last(tx, visited, before=before)
        removed = await retention.prune_jobs(tx, visited, before=before, limit=ROWS_A_BATCH)
        self.report.jobs += removed
        if removed == ROWS_A_BATCH:
            return after  # these connections may have more old jobs
        return visited[-1] if len(visited) == CONNECTIONS_A_BATCH else None

    async def _prune_signals(self, tx: Transaction, after: UUID, before: datetime) -> UUID | None:
        """Remove the oldest signals; return None if no old ones are left."""
        removed = await retention.prune_signals(tx, before=before, limit=ROWS_A_BATCH)
        self.report.signals += removed
        return after if removed == ROWS_A_BATCH else None

    async def _forget_answers(self, tx: Transaction, after: UUID, before: datetime) -> UUID | None:
        """Remove old idempotency records; a request removes only those of its own tenant."""
        removed = await idempotency.forget(tx, before=before, limit=ROWS_A_BATCH)
        return after if removed == ROWS_A_BATCH else None


@dataclass(slots=True)
class Walk:
    """A walk over ids, one transaction per batch."""

    pool: Pool
    clock: Clock
    kept_days: int
    visit: Callable[[Transaction, UUID, datetime], Awaitable[UUID | None]]
    after: UUID = BEGINNING

    async def batch(self) -> bool:
        """Visit the next ids; return whether there are more."""
        async with self.pool.transaction() as tx:
            before = await self.clock.now(tx) - timedelta(days=self.kept_days)
            after = await self.visit(tx, self.after, before)
        self.after = self.after if after is None else after
        return after is not None
