"""The metrics and log events of the house: loops, workers, sizes, freshness, what was pruned."""

import logging
import traceback
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

from syncline.model import ApiKey, TableSize, Worker, WorkerStatus
from syncline.redaction import mask_secrets
from syncline.telemetry import metrics
from syncline.telemetry.log import TRACEBACK, Fields, Voice

MAX_PROVIDERS = 500  # a connection may be created with any provider's name
ENGINE = logging.getLogger("syncline.engine")


class HouseTelling(Voice):
    """Tells what is not about a single job."""

    def __init__(self, cell: str, define: metrics.Definitions) -> None:
        super().__init__(cell)
        self._providers = metrics.BoundedNames(MAX_PROVIDERS)
        self._engine = metrics.EngineMetrics(define)
        self._engine.info[cell].set(1)

    def loop_failed(self, loop: str, error: BaseException, pause: timedelta) -> None:
        self._engine.loop_failures[loop].inc()
        fields: Fields = {"loop": loop, "error_class": type(error).__name__}
        fields["error"] = mask_secrets(str(error), 500)
        fields["pause_seconds"] = round(pause.total_seconds(), 3)
        if ENGINE.isEnabledFor(logging.DEBUG):  # an outage repeats itself too often to say it all
            fields[TRACEBACK] = mask_secrets("".join(traceback.format_exception(error))).rstrip()
        self._log(ENGINE, logging.WARNING, "engine.loop_failed", fields)

    def event_loop_measured(self, longest_seconds: float) -> None:
        self._engine.longest_hold.set(longest_seconds)

    def event_loop_held(
        self,
        provider_slug: str,
        coroutine: str,
        *,
        seconds: float,
        processor_seconds: float,
        is_logged: bool,
    ) -> None:
        """Count a long hold; the provider is empty where no connector was at work."""
        self._engine.holds[self._providers.shown(provider_slug)].inc()
        if is_logged:
            fields: Fields = {"provider_slug": provider_slug, "coroutine": coroutine}
            fields["seconds"] = round(seconds, 3)
            fields["processor_seconds"] = round(processor_seconds, 3)
            self._log(ENGINE, logging.WARNING, "engine.event_loop_held", fields)

    def database_back(self, loop: str) -> None:
        self._log(ENGINE, logging.INFO, "engine.database_back", {"loop": loop})

    def pruned(self, jobs: int, signals: int) -> None:
        """Count what a round of retention removed."""
        self._engine.pruned["jobs"].inc(jobs)
        self._engine.pruned["signals"].inc(signals)
        if jobs or signals:
            self._log(ENGINE, logging.INFO, "engine.pruned", {"jobs": jobs, "signals": signals})

    def tenant_paused(self, tenant_id: str, stored: int, limit: int, connections: int) -> None:
        """Tell that a tenant stores too much, and how many connections were paused for it."""
        fields: Fields = {"tenant_id": tenant_id, "stored_bytes": stored, "limit_bytes": limit}
        fields["connections"] = connections
        self._log(ENGINE, logging.WARNING, "engine.tenant_paused", fields)

    def workers_counted(self, by_status: Mapping[str, int]) -> None:
        for status in WorkerStatus:
            self._engine.workers[status].set(by_status.get(status, 0))

    def worker_died(self, worker: Worker) -> None:
        fields: Fields = {
            "worker_id": str(worker.id),
            "host": worker.host,
            "worker_pid": worker.pid,
        }
        fields |= {"busy": worker.busy, "last_heard_of": worker.beat_at.isoformat()}
        self._log(ENGINE, logging.WARNING, "engine.worker_died", fields)

    def keys_expiring(self, count: int) -> None:
        self._engine.keys_expiring.set(count)

    def key_expires(self, key: ApiKey) -> None:
        """Warn of a key that ends soon; whoever uses it needs another one by then."""
        fields: Fields = {"key_id": str(key.id), "key_name": key.name}
        if key.expires_at is not None:
            fields["expires_at"] = key.expires_at.isoformat()
        self._log(ENGINE, logging.WARNING, "engine.key_expires", fields)

    def house_measured(self, tables: Iterable[TableSize], oldest_snapshot: timedelta) -> None:
        for table in tables:
            self._engine.table_bytes[table.name].set(table.bytes)
            self._engine.table_rows[table.name].set(table.rows)
            self._engine.table_dead_rows[table.name].set(table.dead_rows)
        self._engine.oldest_snapshot.set(oldest_snapshot.total_seconds())

    def freshness_measured(self, ages: Mapping[str, Sequence[float]], weight: float) -> None:
        """Show how old the last good sync of connections is; each stands for `weight` of them."""
        shown: dict[str, list[float]] = {str(label): [] for label in self._engine.freshness}
        for provider_slug, seconds in ages.items():
            shown.setdefault(self._providers.shown(provider_slug), []).extend(seconds)
        for label, seconds in shown.items():
            self._engine.freshness[label].show_all(seconds, weight)
