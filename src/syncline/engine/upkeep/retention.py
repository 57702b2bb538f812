"""Retention: finished jobs and old signals go, a small batch at a time and with long breaths."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from syncline.clock import Clock, monotonic
from syncline.engine.upkeep.heartbeat import Heartbeat
from syncline.engine.upkeep.storage_limit import StorageWalk
from syncline.settings import RetentionSettings
from syncline.store.data import idempotency, retention
from syncline.store.pool import Pool, Transaction
from syncline.telemetry.upkeep import UpkeepTelemetry

CONNECTIONS_A_BATCH = 500
ROWS_A_BATCH = 500
REST = timedelta(minutes=10)  # between two rounds
FIRST_REST = timedelta(minutes=1)  # jobs may have waited for this process; what is old can wait
BREATHS = 4  # a batch is followed by a pause of so many times its own length
BEGINNING = UUID(int=0)


@dataclass(slots=True)
class PruneReport:
    """What one round removed."""

    jobs: int = 0
    signals: int = 0


class Pruner:
    """Goes round in batches, a batch a step.

    The longest-living process does it. Two that both think they are do no harm: each takes what
    the other does not hold.
    """

    def __init__(
        self,
        pool: Pool,
        settings: RetentionSettings,
        max_stored_bytes: int | None,
        clock: Clock,
        heartbeat: Heartbeat,
        telemetry: UpkeepTelemetry,
    ) -> None:
        self._pool = pool
        self._settings = settings
        self._max_stored_bytes = max_stored_bytes
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
        """Remove a batch, and return how long to leave the database alone."""
        if self._round is None:
            if not await self._heartbeat.is_first():
                return REST
            self._round = self._begin()
        began = monotonic()
        if await self._go_on(self._round):
            return timedelta(seconds=BREATHS * (monotonic() - began))
        self._round = None
        return REST

    def _begin(self) -> "Round":
        going = Round(self._pool, self._settings, self._clock)
        if (limit := self._max_stored_bytes) is not None:
            going.walks.append(StorageWalk(self._pool, self._clock, limit, self._telemetry))
        return going

    async def _go_on(self, going: "Round") -> bool:
        """Remove a batch, and return whether there may be more."""
        if await going.batch():
            return True
        self._telemetry.rows_pruned(going.report.jobs, going.report.signals)
        return False


class Round:
    """Over the connections for their jobs, along the signals and old answers; then to measure."""

    def __init__(self, pool: Pool, settings: RetentionSettings, clock: Clock) -> None:
        self.report = PruneReport()
        self.walks: list[Walk | StorageWalk] = []
        if settings.jobs_days is not None:
            self.walks.append(Walk(pool, clock, settings.jobs_days, self._prune_jobs))
        if settings.signals_days is not None:
            self.walks.append(Walk(pool, clock, settings.signals_days, self._prune_signals))
        self.walks.append(Walk(pool, clock, idempotency.KEPT_FOR.days, self._forget_answers))

    async def batch(self) -> bool:
        """Make the next batch of the walk that is on, and return whether there is more to do."""
        if self.walks and not await self.walks[0].batch():
            del self.walks[0]
        return bool(self.walks)

    async def _prune_jobs(self, tx: Transaction, after: UUID, before: datetime) -> UUID | None:
        """Visit connections in the order of their ids; return how far, or None at the end."""
        visited = await retention.next_connections(tx, after=after, limit=CONNECTIONS_A_BATCH)
        await retention.keep_last(tx, visited, before=before)
        removed = await retention.prune_jobs(tx, visited, before=before, limit=ROWS_A_BATCH)
        self.report.jobs += removed
        if removed == ROWS_A_BATCH:
            return after  # these may have more to give
        return visited[-1] if len(visited) == CONNECTIONS_A_BATCH else None

    async def _prune_signals(self, tx: Transaction, after: UUID, before: datetime) -> UUID | None:
        """Remove the oldest signals; return None once there are no more that are old."""
        removed = await retention.prune_signals(tx, before=before, limit=ROWS_A_BATCH)
        self.report.signals += removed
        return after if removed == ROWS_A_BATCH else None

    async def _forget_answers(self, tx: Transaction, after: UUID, before: datetime) -> UUID | None:
        """Forget what was answered; a tenant's request forgets that tenant's answers alone."""
        removed = await idempotency.forget(tx, before=before, limit=ROWS_A_BATCH)
        return after if removed == ROWS_A_BATCH else None


@dataclass(slots=True)
class Walk:
    """A way along ids, one transaction a batch."""

    pool: Pool
    clock: Clock
    kept_days: int
    visit: Callable[[Transaction, UUID, datetime], Awaitable[UUID | None]]
    after: UUID = BEGINNING

    async def batch(self) -> bool:
        """Return whether there is more to visit."""
        async with self.pool.transaction() as tx:
            before = await self.clock.now(tx) - timedelta(days=self.kept_days)
            after = await self.visit(tx, self.after, before)
        self.after = self.after if after is None else after
        return after is not None
