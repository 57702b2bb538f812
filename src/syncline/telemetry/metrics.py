"""Every metric by name and labels, and the series that keep them cheap and bounded.

Only this package uses them; docs/reference/metrics.md says what each one means.
"""

import collections
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from copy import copy
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric

from syncline.policy.figures import DELAY_SECONDS, DURATION_SECONDS

TICK_MILLISECONDS = (1, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 60_000, 300_000)
JITTER_SECONDS = (1, 5, 10, 30, 60, 90, 120, 150, 180, 300, 600, 1800, 3600, 10_800, 86_400)
LATENESS_SECONDS = (1, 5, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 10_800, 43_200, 86_400)
FRESHNESS_SECONDS = (60, 300, 600, 900, 1800, 3600, 7200, 21_600, 43_200, 86_400, 259_200, 604_800)
BACKOFF_SECONDS = (1, 5, 10, 20, 40, 80, 160, 320, 640, 1000, 3600, 21_600, 86_400)
SLUG = "provider_slug"
BEYOND_LIMIT = "_other"


class BatchHistogram(Histogram):
    """A histogram that takes many values at a third of the cost of one `observe` each."""

    def observe_all(self, amounts: Sequence[float]) -> None:
        bounds: list[float] = self._upper_bounds
        for bucket, count in collections.Counter(bisect_left(bounds, a) for a in amounts).items():
            self._buckets[bucket].inc(count)
        self._sum.inc(sum(amounts))

    def show_all(self, amounts: Sequence[float], weight: float) -> None:
        """Replace all observations with these values, each counted `weight` times."""
        bounds: list[float] = self._upper_bounds
        counts = collections.Counter(bisect_left(bounds, a) for a in amounts)
        for place, bucket in enumerate(self._buckets):
            bucket.set(counts[place] * weight)
        self._sum.set(sum(amounts) * weight)


M = TypeVar("M", Counter, Gauge, BatchHistogram)


class LoopMetrics:
    def __init__(self, define: "Definitions", cell: str) -> None:
        info = define.gauge("sync_engine_info", "1 for an engine, by its cell.", "cell")
        info[cell].set(1)
        self.failures = define.counter(
            "sync_engine_loop_failures_total", "Failed passes, which are retried.", "loop"
        )
        self.longest_hold = define.gauge(
            "sync_engine_event_loop_longest_hold_seconds", "Longest hold in the last 1 to 2 min."
        ).alone()
        self.holds = define.counter(
            "sync_engine_event_loop_holds_total", "Holds of more than 250 ms.", SLUG
        )


class UpkeepMetrics:
    def __init__(self, define: "Definitions") -> None:
        self.workers = define.gauge("sync_engine_workers", "Processes, by status.", "status")
        self.pruned = define.counter("sync_engine_pruned_total", "Old rows removed.", "kind")
        self.table_bytes = define.gauge("sync_engine_table_bytes", "Size of a table.", "table")
        self.table_rows = define.gauge("sync_engine_table_rows", "Rows, estimated.", "table")
        self.table_dead_rows = define.gauge(
            "sync_engine_table_dead_rows", "Rows not yet vacuumed, estimated.", "table"
        )
        self.oldest_snapshot = define.gauge(
            "sync_engine_oldest_snapshot_seconds", "Age of the oldest open snapshot."
        ).alone()
        self.keys_expiring = define.gauge(
            "sync_engine_keys_expiring", "API keys that expire soon."
        ).alone()
        self.freshness = define.histogram(
            "sync_engine_freshness_seconds", "Age of last good syncs.", FRESHNESS_SECONDS, SLUG
        )


class SchedulerMetrics:
    def __init__(self, define: "Definitions", *, tenant_label: bool) -> None:
        labels = (SLUG, "tenant_id") if tenant_label else (SLUG,)
        self.scheduled = define.counter(
            "sync_scheduler_jobs_scheduled_total", "Runs scheduled.", *labels
        )
        self.jitter = define.histogram(
            "sync_scheduler_jitter_seconds", "Jitter of each scheduled run.", JITTER_SECONDS
        ).alone()
        self.backlog = define.gauge(
            "sync_scheduler_backlog_gauge", "Overdue connections, before the last tick."
        ).alone()
        self.tick_duration = define.histogram(
            "sync_scheduler_tick_duration_ms", "Duration of each tick.", TICK_MILLISECONDS
        ).alone()


class ExecutorMetrics:
    def __init__(self, define: "Definitions") -> None:
        counter, gauge, histogram = define.counter, define.gauge, define.histogram
        self.claimed = counter("sync_executor_jobs_claimed_total", "Jobs claimed.", SLUG)
        self.succeeded = counter("sync_executor_jobs_succeeded_total", "Jobs succeeded.", SLUG)
        self.failed = counter(
            "sync_executor_jobs_failed_total", "Attempts failed.", SLUG, "error_class"
        )
        self.released = counter(
            "sync_executor_jobs_released_total", "Jobs returned unchanged.", SLUG
        )
        self.cancelled = counter("sync_executor_jobs_cancelled_total", "Jobs cancelled.", SLUG)
        self.fenced = counter(
            "sync_executor_jobs_fenced_total", "Runs that lost their lease.", SLUG
        )
        self.reaped = counter("sync_executor_jobs_reaped_total", "Leases lapsed.", SLUG)
        self.signals = counter("sync_executor_signals_stored_total", "Signals stored.", SLUG)
        self.claim_delay = histogram(
            "sync_executor_claim_delay_seconds", "From due to start.", DELAY_SECONDS, SLUG
        )
        self.lateness = histogram(
            "sync_executor_lateness_seconds", "From slot to start.", LATENESS_SECONDS, SLUG
        )
        self.run = histogram(
            "sync_executor_run_seconds", "Duration of runs.", DURATION_SECONDS, SLUG, "outcome"
        )
        self.backoff = histogram(
            "sync_executor_backoff_seconds", "Wait after a failure.", BACKOFF_SECONDS, SLUG
        )
        self.rate_limited = counter("sync_executor_rate_limits_total", "Rate limits hit.", SLUG)
        self.rate_limit_wait = counter(
            "sync_executor_rate_limit_wait_seconds_total", "Total wait after rate limits.", SLUG
        )
        self.slots = gauge("sync_executor_slots", "Jobs that may run at once.").alone()
        self.shut = gauge(
            "sync_executor_provider_shut", "1 while no job of a provider may start.", SLUG
        )
        self.queue_depth = gauge("sync_executor_queue_depth", "Jobs due and not claimed.", SLUG)
        self.queue_age = gauge(
            "sync_executor_queue_age_seconds", "How long the oldest due job has waited."
        ).alone()


class ShareMetrics:
    """Tenants that yield, and caps."""

    def __init__(self, define: "Definitions") -> None:
        self.over_share = define.gauge(
            "sync_executor_tenants_over_share", "Tenants that ask for more than their share."
        ).alone()
        self.caps_full = define.gauge(
            "sync_executor_caps_full", "Caps that no further job may start under."
        ).alone()


class Definitions:
    """Defines metrics in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def counter(self, name: str, text: str, *labels: str) -> "Series[Counter]":
        return Series(Counter(name, text, labels, registry=self._registry))

    def gauge(self, name: str, text: str, *labels: str) -> "Series[Gauge]":
        return Series(Gauge(name, text, labels, registry=self._registry))

    def histogram(
        self, name: str, text: str, buckets: tuple[float, ...], *labels: str
    ) -> "Series[BatchHistogram]":
        return Series(BatchHistogram(name, text, labels, buckets=buckets, registry=self._registry))


class Series(dict[str | tuple[str, ...], M], Generic[M]):
    """A metric's children by label, each made once: prometheus-client's own lookup is slow."""

    def __init__(self, metric: M) -> None:
        super().__init__()
        self._metric: M = metric

    def alone(self) -> M:
        """Return the metric itself, which has no labels."""
        return self._metric

    def __missing__(self, labels: str | tuple[str, ...]) -> M:
        values = (labels,) if isinstance(labels, str) else labels
        self[labels] = child = self._metric.labels(*values)
        return child


class BoundedNames:
    """Limits the names used as labels; names after the first `limit` share one label."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._names: set[str] = set()

    def shown(self, name: str) -> str:
        if name in self._names:
            return name
        if len(self._names) >= self._limit:
            return BEYOND_LIMIT
        self._names.add(name)
        return name


class WithoutCreated:
    """A registry's metrics without their `_created` samples.

    prometheus-client can leave them out itself, but only for the whole process, which is not ours.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for metric in self._registry.collect():
            plain = copy(metric)
            plain.samples = [s for s in metric.samples if s.name != f"{metric.name}_created"]
            yield plain
