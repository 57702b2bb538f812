"""The metrics and log events of upkeep: workers, API keys, table sizes, freshness, retention."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

from syncline.model import ApiKey, TableSize, Worker, WorkerStatus
from syncline.telemetry import metrics
from syncline.telemetry.log import Fields, StructuredLog

ENGINE = logging.getLogger("syncline.engine")


class UpkeepTelemetry:
    """Records what upkeep measures and removes; one method per event."""

    def __init__(
        self, define: metrics.Definitions, log: StructuredLog, providers: metrics.BoundedNames
    ) -> None:
        self._metrics = metrics.UpkeepMetrics(define)
        self._log = log
        self._providers = providers

    def rows_pruned(self, counts: Mapping[str, int]) -> None:
        """Record what retention removed: `jobs`, `empty_jobs` and `signals`."""
        for kind, count in counts.items():
            self._metrics.pruned[kind].inc(count)
        if any(counts.values()):
            self._log.event(ENGINE, logging.INFO, "engine.pruned", dict(counts))

    def tenant_paused(self, tenant_id: str, stored: int, limit: int, connections: int) -> None:
        """Record that a tenant's connections were paused because it stores too much."""
        fields: Fields = {"tenant_id": tenant_id, "stored_bytes": stored, "limit_bytes": limit}
        fields["connections"] = connections
        self._log.event(ENGINE, logging.WARNING, "engine.tenant_paused", fields)

    def workers_counted(self, by_status: Mapping[str, int]) -> None:
        for status in WorkerStatus:
            self._metrics.workers[status].set(by_status.get(status, 0))

    def worker_died(self, worker: Worker) -> None:
        fields: Fields = {
            "worker_id": str(worker.id),
            "host": worker.host,
            "worker_pid": worker.pid,
            "busy": worker.busy,
            "last_heard_of": worker.beat_at.isoformat(),
        }
        self._log.event(ENGINE, logging.WARNING, "engine.worker_died", fields)

    def expiring_keys_counted(self, count: int) -> None:
        self._metrics.keys_expiring.set(count)

    def key_expires(self, key: ApiKey) -> None:
        """Warn that a key expires soon; its users need another one by then."""
        fields: Fields = {"key_id": str(key.id), "key_name": key.name}
        if key.expires_at is not None:
            fields["expires_at"] = key.expires_at.isoformat()
        self._log.event(ENGINE, logging.WARNING, "engine.key_expires", fields)

    def tables_measured(self, tables: Iterable[TableSize], oldest_snapshot: timedelta) -> None:
        for table in tables:
            self._metrics.table_bytes[table.name].set(table.bytes)
            self._metrics.table_rows[table.name].set(table.rows)
            self._metrics.table_dead_rows[table.name].set(table.dead_rows)
        self._metrics.oldest_snapshot.set(oldest_snapshot.total_seconds())

    def freshness_measured(self, ages: Mapping[str, Sequence[float]], weight: float) -> None:
        """Replace the ages of last good syncs; each sampled age stands for `weight` connections."""
        shown: dict[str, list[float]] = {str(label): [] for label in self._metrics.freshness}
        for provider_slug, seconds in ages.items():
            shown.setdefault(self._providers.shown(provider_slug), []).extend(seconds)
        for label, seconds in shown.items():
            self._metrics.freshness[label].show_all(seconds, weight)
