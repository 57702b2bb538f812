"""Maintenance: find and forget dead workers, and measure tables, freshness and API keys."""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from syncline.clock import Clock
from syncline.engine.upkeep.connector_files import ConnectorFiles
from syncline.engine.upkeep.heartbeat import DEAD_AFTER, FORGOTTEN_AFTER
from syncline.engine.upkeep.key_uses import KeyUses
from syncline.model import ApiKey, Worker, WorkerStatus
from syncline.policy.freshness import ages_by_provider
from syncline.store.data import keys, workers
from syncline.store.pool import Pool
from syncline.store.stats import freshness, table_sizes
from syncline.telemetry.upkeep import UpkeepTelemetry

MAINTAIN_EVERY = timedelta(seconds=60)


class Maintenance:
    """A pass every minute. Any number of processes may make one at the same time."""

    def __init__(
        self,
        pool: Pool,
        clock: Clock,
        telemetry: UpkeepTelemetry,
        key_uses: KeyUses,
        files: ConnectorFiles,
    ) -> None:
        self._pool = pool
        self._clock = clock
        self._telemetry = telemetry
        self._key_uses = key_uses
        self._files = files
        self._known_dead: set[UUID] | None = None
        self._known_expiring: set[UUID] = set()

    async def step(self) -> timedelta:
        """Save key uses, forget dead workers, then record workers, sizes, freshness and keys."""
        await self._key_uses.save()
        async with self._pool.transaction() as tx:
            now = await self._clock.now(tx)
            await workers.forget_dead(tx, silent_since=now - FORGOTTEN_AFTER)
            present = await workers.list_all(tx, silent_since=now - DEAD_AFTER)
            tables = await table_sizes.measure_tables(tx)
            oldest_snapshot = await table_sizes.oldest_snapshot(tx)
            rows = {table.name: table.rows for table in tables}
            sample = await freshness.sample(tx, connections=rows["connections"])
            expiring = await keys.list_expiring(tx, now=now)
        self._report_expiring(expiring)
        self._telemetry.workers_counted(Counter(worker.status for worker in present))
        self._telemetry.tables_measured(tables, oldest_snapshot)
        self._telemetry.freshness_measured(ages_by_provider(sample, now), sample.weight)
        self._report_deaths([worker for worker in present if worker.status == WorkerStatus.DEAD])
        await self._files.sweep()
        return MAINTAIN_EVERY

    def _report_expiring(self, expiring: Sequence[ApiKey]) -> None:
        """Log each expiring key once in the life of this process."""
        self._telemetry.expiring_keys_counted(len(expiring))
        for key in expiring:
            if key.id not in self._known_expiring:
                self._telemetry.key_expires(key)
        self._known_expiring = {key.id for key in expiring}

    def _report_deaths(self, dead: Sequence[Worker]) -> None:
        """Log each death once; deaths from before this process started are not logged."""
        known, self._known_dead = self._known_dead, {worker.id for worker in dead}
        for worker in dead:
            if known is not None and worker.id not in known:
                self._telemetry.worker_died(worker)
