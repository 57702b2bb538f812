"""The metrics, log events and spans of the scheduler, the executor and their loops.

docs/reference/metrics.md says what they mean. Each engine has its own registry. Spans go nowhere
until the application installs an OpenTelemetry SDK. Secrets, cursors and payloads never appear.
"""

import logging
import traceback
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import SupportsFloat
from uuid import UUID

from opentelemetry import trace
from prometheus_client import CollectorRegistry, generate_latest

from syncline.clock import monotonic
from syncline.policy.schedule import RunPlan
from syncline.redaction import mask_secrets
from syncline.telemetry import metrics
from syncline.telemetry.api import ApiTelemetry
from syncline.telemetry.budgets import BudgetTelemetry
from syncline.telemetry.figures import FigureBook
from syncline.telemetry.http import ConnectorHttpTelemetry
from syncline.telemetry.log import TRACEBACK, Fields, StructuredLog, current_span
from syncline.telemetry.upkeep import UpkeepTelemetry

ENGINE = logging.getLogger("syncline.engine")
SCHEDULER = logging.getLogger("syncline.scheduler")
EXECUTOR = logging.getLogger("syncline.executor")
MAX_PROVIDERS = 500  # a connection may be created with any provider's name
MAX_SPAN_EVENTS = 1000  # a tick may plan 100 000 runs; the debug log has them all
CONNECTOR_ERRORS = {"RateLimited", "Transient", "Unauthorized", "Permanent", "SyncError"}
ERROR_CLASSES = CONNECTOR_ERRORS | {"ContractError", "Timeout", "LeaseLapsed", "Unexpected"}
NO_SPAN = nullcontext()
SILENT = (trace.ProxyTracerProvider, trace.NoOpTracerProvider)  # no SDK is installed
LOGGED_EVERY_SECONDS = 60  # the same error of the same connector
MAX_LOGGED_ERRORS = 1000


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """One attempt that failed; `wait` is the backoff before the next one, if there is one."""

    provider_slug: str
    connection_id: UUID
    job_id: UUID
    error_class: str
    terminal: bool
    wait: timedelta | None


@dataclass(slots=True)
class LoggedError:
    """When a connector's error was last logged, and how often it was left out since."""

    logged_at: float
    repeated: int = 0


class Telemetry:
    """Records what one engine did: one method per event, called once it has happened."""

    def __init__(
        self,
        *,
        tenant_label: bool = True,
        max_tenants: int = 2000,
        cell: str = "syncline",
        registry: CollectorRegistry | None = None,
        tracer: trace.Tracer | None = None,
    ) -> None:
        self.registry = registry or CollectorRegistry()
        define = metrics.Definitions(self.registry)
        self._log = StructuredLog(cell)
        self._tracer = tracer or trace.get_tracer("syncline")
        self._providers = metrics.BoundedNames(MAX_PROVIDERS)
        self._tenants = metrics.BoundedNames(max_tenants) if tenant_label else None
        self._loops = metrics.LoopMetrics(define, cell)
        self._scheduler = metrics.SchedulerMetrics(define, tenant_label=tenant_label)
        self._executor = metrics.ExecutorMetrics(define)
        self._shares = metrics.ShareMetrics(define)
        self.figures = FigureBook(self._executor)
        self.upkeep = UpkeepTelemetry(define, self._log, self._providers)
        self.budgets = BudgetTelemetry(define, self._log)
        self.http = ConnectorHttpTelemetry(define, self._tracer, cell)
        self.api = ApiTelemetry(define, self._log)
        self._logged_errors: dict[tuple[str, str], LoggedError] = {}
        self._tick_span: trace.Span = trace.INVALID_SPAN
        self._span_events_left = 0

    def exposition(self) -> bytes:
        """Return every metric in Prometheus' text format."""
        return generate_latest(metrics.WithoutCreated(self.registry))

    def tick(self) -> AbstractContextManager[None]:
        """Open the span of a tick; record its events inside the span."""
        span = self._tracer.start_span("scheduler.tick", attributes={"cell": self._log.cell})
        self._tick_span = span
        self._span_events_left = MAX_SPAN_EVENTS if span.is_recording() else 0
        return current_span(span)

    def jobs_scheduled(
        self,
        plans: Sequence[RunPlan],
        *,
        jitter_pct_min: SupportsFloat,
        jitter_pct_max: SupportsFloat,
    ) -> None:
        """Count the runs that a batch scheduled, and trace each plan if tracing is on."""
        counts = Counter((plan.provider_slug, plan.tenant_id) for plan in plans)
        for (provider, tenant), count in counts.items():
            shown = self._providers.shown(provider)
            if self._tenants is None:
                self._scheduler.scheduled[shown].inc(count)
            else:
                self._scheduler.scheduled[shown, self._tenants.shown(tenant)].inc(count)
        self._scheduler.jitter.observe_all([plan.jitter_seconds for plan in plans])
        if self._span_events_left or SCHEDULER.isEnabledFor(logging.DEBUG):
            bounds = {
                "jitter_pct_min": float(jitter_pct_min),
                "jitter_pct_max": float(jitter_pct_max),
            }
            for plan in plans:
                self._trace_plan(plan, bounds)

    def _trace_plan(self, plan: RunPlan, bounds: Mapping[str, float]) -> None:
        fields: Fields = {
            "connection_id": str(plan.connection_id),
            "jitter_seconds": plan.jitter_seconds,
            "base_interval_seconds": int(plan.interval.total_seconds()),
            **bounds,
            "slot": plan.slot_at.isoformat(),
            "next_due_at": plan.next_due_at.isoformat(),
            "scheduled_at": plan.scheduled_at.isoformat(),
            "next_run_at": plan.next_run_at.isoformat(),
        }
        if self._span_events_left:
            self._span_events_left -= 1
            trace.get_current_span().add_event("scheduler.job_scheduled", fields)
        self._log.event(SCHEDULER, logging.DEBUG, "scheduler.job_scheduled", fields)

    def tick_finished(
        self, *, due: int, scheduled: int, skipped: int, overdue: int, duration: timedelta
    ) -> None:
        milliseconds = duration / timedelta(milliseconds=1)
        self._scheduler.backlog.set(overdue)
        self._scheduler.tick_duration.observe(milliseconds)
        counts = {"due": due, "scheduled": scheduled, "skipped": skipped, "overdue": overdue}
        if trace.get_current_span() is self._tick_span:  # never write on a span of the application
            self._tick_span.set_attributes(counts)
        fields = {**counts, "milliseconds": round(milliseconds, 1)}
        self._log.event(SCHEDULER, logging.INFO, "scheduler.tick", fields)

    def bad_metadata(self, connection_id: UUID, key: str, reason: str) -> None:
        fields = {"connection_id": str(connection_id), "key": key, "reason": reason}
        self._log.event(SCHEDULER, logging.WARNING, "scheduler.bad_metadata", fields)

    def scheduler_stopped(self) -> None:
        self._log.event(SCHEDULER, logging.INFO, "scheduler.stopped")

    def jobs_claimed(self, provider_slug: str, seconds_due: Iterable[float]) -> None:
        """Count claimed jobs, and how long after they were due they start."""
        seconds = [max(0.0, waited) for waited in seconds_due]
        self._executor.claimed[provider_slug].inc(len(seconds))
        self._executor.claim_delay[provider_slug].observe_all(seconds)

    def is_traced(self) -> bool:
        """Whether an OpenTelemetry SDK is installed; an unread span doubles the cost of a run."""
        has_own = not isinstance(self._tracer, trace.ProxyTracer | trace.NoOpTracer)
        return has_own or not isinstance(trace.get_tracer_provider(), SILENT)

    def jobs_late(self, provider_slug: str, seconds_late: Iterable[float]) -> None:
        """Record how long after their slots interval jobs start."""
        seconds = [max(0.0, late) for late in seconds_late]
        self._executor.lateness[provider_slug].observe_all(seconds)

    def claim(self) -> AbstractContextManager[None]:
        """Open the span of a claim."""
        return self._batch_span("executor.claim", {})

    def settle(self, jobs: int) -> AbstractContextManager[None]:
        """Open the span of a settlement."""
        return self._batch_span("executor.settle", {"jobs": jobs})

    def _batch_span(self, name: str, attributes: dict[str, int]) -> AbstractContextManager[None]:
        if not self.is_traced():
            return NO_SPAN
        span = self._tracer.start_span(name)
        span.set_attributes({"cell": self._log.cell, **attributes})
        return current_span(span)

    def run(
        self, job_id: UUID, connection_id: UUID, provider_slug: str, job_type: str
    ) -> AbstractContextManager[None]:
        """Open the span of a run; an exception that leaves the block marks it as failed."""
        span = self._tracer.start_span("executor.run")
        if not span.get_span_context().is_valid:
            return NO_SPAN  # entering an unread span costs more than the rest of a run
        if span.is_recording():
            span.set_attributes({"cell": self._log.cell, "job_id": str(job_id)})
            span.set_attributes({"connection_id": str(connection_id), "job_type": job_type})
            span.set_attribute("provider_slug", provider_slug)
        return current_span(span)

    def run_finished(self, provider_slug: str, outcome: str, duration: timedelta) -> None:
        self._executor.run[provider_slug, outcome].observe(duration.total_seconds())

    def runs_succeeded(self, provider_slug: str, seconds: Sequence[float], *, signals: int) -> None:
        """Count runs that returned a page, their durations and their signals."""
        self._executor.run[provider_slug, "succeeded"].observe_all(seconds)
        self._executor.succeeded[provider_slug].inc(len(seconds))
        self._executor.signals[provider_slug].inc(signals)

    def page_committed(self, provider_slug: str, *, signals: int) -> None:
        """Count the signals of a streamed page; its job is still running."""
        self._executor.signals[provider_slug].inc(signals)

    def job_failed(self, failed: FailedAttempt) -> None:
        """Record a failed attempt; a terminal one also ended its job."""
        provider_slug, error_class = failed.provider_slug, failed.error_class
        label = error_class if error_class in ERROR_CLASSES else "other"
        self._executor.failed[provider_slug, label].inc()
        fields: Fields = {
            "connection_id": str(failed.connection_id),
            "job_id": str(failed.job_id),
            "provider_slug": provider_slug,
            "error_class": error_class,
            "terminal": failed.terminal,
        }
        if failed.wait is not None:
            fields["wait_seconds"] = round(failed.wait.total_seconds(), 3)
            self._executor.backoff[provider_slug].observe(failed.wait.total_seconds())
        level = logging.WARNING if failed.terminal else logging.INFO
        self._log.event(EXECUTOR, level, "executor.job_failed", fields)

    def connector_raised(
        self, provider_slug: str, connection_id: UUID, error_class: str, shown: str
    ) -> None:
        """Log the traceback of an unexpected exception, at most once a minute for each class."""
        now = monotonic()
        key = (provider_slug, error_class)
        before = self._logged_errors.get(key)
        if before is not None and now - before.logged_at < LOGGED_EVERY_SECONDS:
            before.repeated += 1
            return
        if len(self._logged_errors) >= MAX_LOGGED_ERRORS:
            self._logged_errors.clear()
        self._logged_errors[key] = LoggedError(now)
        fields: Fields = {
            "provider_slug": provider_slug,
            "connection_id": str(connection_id),
            "error_class": error_class,
            TRACEBACK: shown,
        }
        if before is not None and before.repeated:
            fields["repeated"] = before.repeated
        self._log.event(EXECUTOR, logging.WARNING, "executor.connector_raised", fields)

    def rate_limited(self, provider_slug: str, wait: timedelta) -> None:
        self._executor.rate_limited[provider_slug].inc()
        self._executor.rate_limit_wait[provider_slug].inc(wait.total_seconds())

    def job_released(self, provider_slug: str, count: int = 1) -> None:
        self._executor.released[provider_slug].inc(count)

    def job_cancelled(self, provider_slug: str, count: int = 1) -> None:
        self._executor.cancelled[provider_slug].inc(count)

    def job_fenced(self, provider_slug: str, count: int = 1) -> None:
        self._executor.fenced[provider_slug].inc(count)

    def pages_lost(self, provider_slug: str, connection_id: UUID, job_id: UUID) -> None:
        """Log that a stream starts again because the database lost some of its pages."""
        fields: Fields = {
            "provider_slug": provider_slug,
            "connection_id": str(connection_id),
            "job_id": str(job_id),
        }
        self._log.event(EXECUTOR, logging.WARNING, "executor.pages_lost", fields)

    def jobs_reaped(self, provider_slug: str, count: int) -> None:
        self._executor.reaped[provider_slug].inc(count)
        fields: Fields = {"provider_slug": provider_slug, "count": count}
        self._log.event(EXECUTOR, logging.WARNING, "executor.jobs_reaped", fields)

    def providers_shut(self, slugs: Sequence[str]) -> None:
        """Show of which providers no job may start."""
        shown = dict.fromkeys(self._executor.shut, 0)
        shown.update(dict.fromkeys(map(self._providers.shown, slugs), 1))
        for label, value in shown.items():
            self._executor.shut[label].set(value)

    def provider_closed(self, provider_slug: str, wait: timedelta) -> None:
        fields: Fields = {"provider_slug": provider_slug, "seconds": round(wait.total_seconds(), 1)}
        self._log.event(EXECUTOR, logging.WARNING, "executor.provider_closed", fields)

    def provider_down(self, provider_slug: str, because: str) -> None:
        fields: Fields = {"provider_slug": provider_slug, "because": because}
        self._log.event(EXECUTOR, logging.WARNING, "executor.provider_down", fields)

    def provider_up(self, provider_slug: str) -> None:
        fields: Fields = {"provider_slug": provider_slug}
        self._log.event(EXECUTOR, logging.INFO, "executor.provider_up", fields)

    def slots_counted(self, slots: int) -> None:
        """Show how many jobs may run at once at present."""
        self._executor.slots.set(slots)

    def tenants_over_share(self, count: int) -> None:
        """Show how many tenants ask for more than their share, as this process sees it."""
        self._shares.over_share.set(count)

    def caps_full(self, count: int) -> None:
        """Show how many caps have no room, or are held by another process."""
        self._shares.caps_full.set(count)

    def queue_measured(self, depth_by_provider: Mapping[str, int], oldest_age: timedelta) -> None:
        depths = dict.fromkeys(
            self._executor.queue_depth, 0
        )  # providers with an empty queue show 0
        for provider_slug, depth in depth_by_provider.items():
            shown = self._providers.shown(provider_slug)
            depths[shown] = depths.get(shown, 0) + depth
        for label, depth in depths.items():
            self._executor.queue_depth[label].set(depth)
        self._executor.queue_age.set(oldest_age.total_seconds())

    def loop_failed(self, loop: str, error: BaseException, pause: timedelta) -> None:
        self._loops.failures[loop].inc()
        fields: Fields = {"loop": loop, "error_class": type(error).__name__}
        fields["error"] = mask_secrets(str(error), 500)
        fields["pause_seconds"] = round(pause.total_seconds(), 3)
        if ENGINE.isEnabledFor(logging.DEBUG):  # an outage would repeat the traceback every second
            fields[TRACEBACK] = mask_secrets("".join(traceback.format_exception(error))).rstrip()
        self._log.event(ENGINE, logging.WARNING, "engine.loop_failed", fields)

    def database_back(self, loop: str) -> None:
        self._log.event(ENGINE, logging.INFO, "engine.database_back", {"loop": loop})

    def event_loop_measured(self, longest_seconds: float) -> None:
        self._loops.longest_hold.set(longest_seconds)

    def event_loop_held(
        self,
        provider_slug: str,
        coroutine: str,
        *,
        seconds: float,
        processor_seconds: float,
        is_logged: bool,
    ) -> None:
        """Count a long hold; the provider is empty if no connector was running."""
        self._loops.holds[self._providers.shown(provider_slug)].inc()
        if is_logged:
            fields: Fields = {"provider_slug": provider_slug, "coroutine": coroutine}
            fields["seconds"] = round(seconds, 3)
            fields["processor_seconds"] = round(processor_seconds, 3)
            self._log.event(ENGINE, logging.WARNING, "engine.event_loop_held", fields)

    def executor_stopped(self) -> None:
        self._log.event(EXECUTOR, logging.INFO, "executor.stopped")
