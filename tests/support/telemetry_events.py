"""One call of every method of Telemetry, and a tracer that keeps its spans."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from syncline.model import ApiKey, Scope, TableSize, Worker
from syncline.policy.schedule import RunPlan
from syncline.telemetry.api import Refusal
from syncline.telemetry.engine import FailedAttempt, Telemetry

CONNECTION, JOB = UUID(int=1), UUID(int=2)
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
WORKER = Worker(UUID(int=3), "web-1", 7, "0.1.0", ["executor"], [], 50, 3, False, NOON, NOON)
SIZE = TableSize("signals", 8192, 10, 2)
KEY = ApiKey(UUID(int=4), "ann", None, "syncline_operator_0", Scope.ADMIN, NOON, NOON + SECOND)


def schedule(
    telemetry: Telemetry, *, tenant_id: str = "acme", provider_slug: str = "tickets"
) -> None:
    plan = RunPlan(
        connection_id=CONNECTION,
        tenant_id=tenant_id,
        provider_slug=provider_slug,
        interval=900 * SECOND,
        slot_at=NOON,
        next_due_at=NOON,
        jitter_seconds=45,
        scheduled_at=NOON + 45 * SECOND,
        next_run_at=NOON + 900 * SECOND,
        next_check_at=NOON + 900 * SECOND,
        last_finished_at=NOON - 900 * SECOND,
        check_after=900 * SECOND,
    )
    telemetry.jobs_scheduled([plan], jitter_pct_min=0, jitter_pct_max=0.2)


def tick(telemetry: Telemetry) -> None:
    with telemetry.tick():
        schedule(telemetry)
        telemetry.tick_finished(due=3, scheduled=2, skipped=1, overdue=5, duration=SECOND / 8)


def refuse(telemetry: Telemetry) -> None:
    telemetry.upkeep.tenant_paused("acme", 20, 10, 3)
    telemetry.api.request_refused(Refusal.RATE)
    telemetry.api.login_failed("203.0.113.7")


def run(telemetry: Telemetry, error: BaseException | None = None) -> None:
    with telemetry.run(JOB, CONNECTION, "tickets", "incremental"):
        if error is not None:
            raise error


def run_and_call_out(telemetry: Telemetry) -> None:
    with (
        telemetry.run(JOB, CONNECTION, "tickets", "incremental"),
        telemetry.http.request("tickets", "GET", "desk.example") as call,
    ):
        call.status, call.received_bytes = 200, 512
    telemetry.api.request_refused(Refusal.RATE)
    telemetry.api.login_failed("192.0.2.1")


def claim(telemetry: Telemetry) -> None:
    with telemetry.claim():
        pass


def settle(telemetry: Telemetry) -> None:
    with telemetry.settle(3):
        pass


def fail(telemetry: Telemetry, error_class: str = "Transient", *, terminal: bool = False) -> None:
    wait = None if terminal else 5 * SECOND
    telemetry.job_failed(
        FailedAttempt("tickets", CONNECTION, JOB, error_class, terminal=terminal, wait=wait)
    )


def show_traceback(telemetry: Telemetry) -> None:
    for _ in range(2):
        telemetry.connector_raised("tickets", CONNECTION, "KeyError", "Traceback …")
    telemetry._logged_errors["tickets", "KeyError"].logged_at = float(
        "-inf"
    )  # more than a minute ago
    telemetry.connector_raised("tickets", CONNECTION, "KeyError", "Traceback …")


EVENTS: dict[str, Callable[[Telemetry], object]] = {
    "exposition": Telemetry.exposition,
    "tick": tick,
    "jobs_scheduled": schedule,
    "tick_finished": tick,
    "bad_metadata": lambda t: t.bad_metadata(CONNECTION, "sync.interval_seconds", "-5 is no time"),
    "scheduler_stopped": Telemetry.scheduler_stopped,
    "jobs_claimed": lambda t: t.jobs_claimed("tickets", [1.0, 2.0]),
    "is_traced": Telemetry.is_traced,
    "tenants_over_share": lambda t: t.tenants_over_share(1),
    "caps_full": lambda t: t.caps_full(1),
    "providers_shut": lambda t: t.providers_shut(["tickets"]),
    "provider_closed": lambda t: t.provider_closed("tickets", SECOND),
    "provider_down": lambda t: t.provider_down("tickets", "20 of 20 attempts failed"),
    "provider_up": lambda t: t.provider_up("tickets"),
    "jobs_late": lambda t: t.jobs_late("tickets", [1.0, 90.0]),
    "claim": claim,
    "settle": settle,
    "run": run_and_call_out,
    "run_finished": lambda t: t.run_finished("tickets", "succeeded", SECOND),
    "runs_succeeded": lambda t: t.runs_succeeded("tickets", [1.0, 1.0], signals=10),
    "page_committed": lambda t: t.page_committed("tickets", signals=5),
    "job_failed": fail,
    "rate_limited": lambda t: t.rate_limited("tickets", 30 * SECOND),
    "job_released": lambda t: t.job_released("tickets"),
    "job_cancelled": lambda t: t.job_cancelled("tickets"),
    "job_fenced": lambda t: t.job_fenced("tickets"),
    "connector_raised": show_traceback,
    "pages_lost": lambda t: t.pages_lost("tickets", CONNECTION, JOB),
    "jobs_reaped": lambda t: t.jobs_reaped("tickets", 2),
    "slots_counted": lambda t: t.slots_counted(50),
    "queue_measured": lambda t: t.queue_measured({"tickets": 4}, 9 * SECOND),
    "executor_stopped": Telemetry.executor_stopped,
    "loop_failed": lambda t: t.loop_failed("claim", OSError("refused"), SECOND),
    "event_loop_measured": lambda t: t.event_loop_measured(0.3),
    "event_loop_held": lambda t: t.event_loop_held(
        "tickets", "Tickets.sync", seconds=0.3, processor_seconds=0.1, is_logged=True
    ),
    "database_back": lambda t: t.database_back("claim"),
    "budgets.calls_made": lambda t: t.budgets.calls_made({"google": 3}),
    "budgets.calls_deferred": lambda t: t.budgets.calls_deferred({"google": 1}),
    "budgets.seen": lambda t: t.budgets.seen({"google": 7.5}),
    "budgets.changed": lambda t: t.budgets.changed("google", "set by the settings"),
    "upkeep.rows_pruned": lambda t: t.upkeep.rows_pruned(
        {"jobs": 3, "empty_jobs": 2, "signals": 4}
    ),
    "upkeep.tenant_paused": refuse,
    "upkeep.workers_counted": lambda t: t.upkeep.workers_counted({"alive": 2}),
    "upkeep.worker_died": lambda t: t.upkeep.worker_died(WORKER),
    "upkeep.expiring_keys_counted": lambda t: t.upkeep.expiring_keys_counted(1),
    "upkeep.key_expires": lambda t: t.upkeep.key_expires(KEY),
    "upkeep.freshness_measured": lambda t: t.upkeep.freshness_measured({"tickets": [60.0]}, 1),
    "upkeep.tables_measured": lambda t: t.upkeep.tables_measured([SIZE], SECOND),
}


class Spans:
    """A tracer for one test, and the spans it exported."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._provider = TracerProvider(
            shutdown_on_exit=False, span_limits=SpanLimits(max_events=1_000_000)
        )
        self._provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self._provider.get_tracer("test")

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Trace the engines that are made in the block, as if an application had set this up.

        A process may do that only once, so this goes round `set_tracer_provider`.
        """
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(trace, "_TRACER_PROVIDER", self._provider)
            yield

    def all(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()

    def only(self) -> ReadableSpan:
        (span,) = self.all()
        return span
