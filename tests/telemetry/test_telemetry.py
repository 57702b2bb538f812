"""What the engine measures, and that the reference lists all it tells."""

import inspect
import logging
import re
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter, generate_latest

from support.telemetry_events import EVENTS, SECOND, Spans, fail, schedule
from syncline.telemetry.budgets import BudgetTelemetry
from syncline.telemetry.engine import MAX_PROVIDERS, Telemetry
from syncline.telemetry.metrics import BatchHistogram, WithoutCreated
from syncline.telemetry.upkeep import UpkeepTelemetry

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"
SCHEDULED = "sync_scheduler_jobs_scheduled_total"


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry()


def test_these_tests_know_every_method() -> None:
    upkeep = {f"upkeep.{name}" for name in public_methods(UpkeepTelemetry)}

    budgets = {f"budgets.{name}" for name in public_methods(BudgetTelemetry)}
    assert public_methods(Telemetry) | upkeep | budgets == set(EVENTS)


def test_the_reference_lists_every_metric_with_its_type_and_labels(telemetry: Telemetry) -> None:
    for happen in EVENTS.values():
        happen(telemetry)

    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", telemetry.exposition().decode(), re.M))
    labels = {
        family.name: {label for sample in family.samples for label in sample.labels} - {"le"}
        for family in telemetry.registry.collect()
    }
    listed = documented("Metrics")
    assert {name: row[0] for name, row in listed.items()} == types
    assert {name.removesuffix("_total"): words(row[1]) for name, row in listed.items()} == labels


def test_the_reference_lists_every_log_event_with_its_level_and_fields(
    telemetry: Telemetry, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "syncline")
    standard = {*vars(logging.makeLogRecord({})), "message", "event", "cell"}

    for happen in EVENTS.values():
        happen(telemetry)

    records = [vars(record) for record in caplog.records]
    listed = documented("Log events")
    assert {name: row[0].split(";")[0] for name, row in listed.items()} == {
        record["event"]: record["levelname"].lower() for record in records
    }
    assert {name: words(row[1]) for name, row in listed.items()} == {
        record["event"]: record.keys() - standard for record in records
    }


def test_the_reference_lists_every_span_with_its_attributes() -> None:
    spans = Spans()
    telemetry = Telemetry(tracer=spans.tracer)

    for happen in EVENTS.values():
        happen(telemetry)

    listed = {name: words(row[0]) for name, row in documented("Spans").items()}
    assert listed == {span.name: set(span.attributes or {}) for span in spans.all()}


def test_scheduled_jobs_are_counted_by_provider_and_tenant(telemetry: Telemetry) -> None:
    schedule(telemetry, tenant_id="acme")
    schedule(telemetry, tenant_id="acme")
    schedule(telemetry, tenant_id="globex")

    assert value(telemetry, SCHEDULED, provider_slug="tickets", tenant_id="acme") == 2
    assert value(telemetry, SCHEDULED, provider_slug="tickets", tenant_id="globex") == 1
    assert value(telemetry, "sync_scheduler_jitter_seconds_sum") == 135


def test_tenants_beyond_the_limit_share_a_label() -> None:
    telemetry = Telemetry(max_tenants=2)

    for tenant_id in ("a", "b", "c", "d", "a"):
        schedule(telemetry, tenant_id=tenant_id)

    counts = {
        tenant_id: value(telemetry, SCHEDULED, provider_slug="tickets", tenant_id=tenant_id)
        for tenant_id in ("a", "b", "c", "_other")
    }
    assert counts == {"a": 2, "b": 1, "c": None, "_other": 2}


def test_the_tenant_label_can_be_switched_off() -> None:
    telemetry = Telemetry(tenant_label=False)

    schedule(telemetry)

    assert value(telemetry, SCHEDULED, provider_slug="tickets") == 1
    assert b"tenant_id" not in telemetry.exposition()


def test_provider_names_are_bounded(telemetry: Telemetry) -> None:
    slugs = [f"provider-{number}" for number in range(MAX_PROVIDERS + 3)]

    for slug in slugs:
        schedule(telemetry, provider_slug=slug)
    telemetry.queue_measured(dict.fromkeys(slugs, 2), SECOND)

    assert value(telemetry, SCHEDULED, provider_slug="_other", tenant_id="acme") == 3
    assert value(telemetry, "sync_executor_queue_depth", provider_slug="_other") == 6


def test_an_empty_tick_is_recorded(telemetry: Telemetry) -> None:
    with telemetry.tick():
        telemetry.tick_finished(due=0, scheduled=0, skipped=0, overdue=0, duration=SECOND / 8)

    assert value(telemetry, "sync_scheduler_backlog_gauge") == 0
    assert value(telemetry, "sync_scheduler_tick_duration_ms_sum") == 125


def test_failures_are_counted_by_known_classes_alone(telemetry: Telemetry) -> None:
    for error_class in ("RateLimited", "MyOwnError", "AnotherError"):
        fail(telemetry, error_class)

    name = "sync_executor_jobs_failed_total"
    limited = value(telemetry, name, provider_slug="tickets", error_class="RateLimited")
    other = value(telemetry, name, provider_slug="tickets", error_class="other")
    assert (limited, other) == (1, 2)
    assert b"MyOwnError" not in telemetry.exposition()


def test_only_a_retry_has_a_backoff(telemetry: Telemetry) -> None:
    fail(telemetry)
    fail(telemetry, terminal=True)

    name = "sync_executor_backoff_seconds_count"
    assert value(telemetry, name, provider_slug="tickets") == 1


def test_jobs_that_settle_together_count_as_many(telemetry: Telemetry) -> None:
    telemetry.runs_succeeded("tickets", [1.0] * 1000, signals=2500)
    telemetry.jobs_claimed("tickets", [-1.0, 3.0])

    labels = {"provider_slug": "tickets"}
    assert value(telemetry, "sync_executor_jobs_succeeded_total", **labels) == 1000
    assert value(telemetry, "sync_executor_signals_stored_total", **labels) == 2500
    assert value(telemetry, "sync_executor_jobs_claimed_total", **labels) == 2
    assert value(telemetry, "sync_executor_claim_delay_seconds_sum", **labels) == 3
    labels["outcome"] = "succeeded"
    assert value(telemetry, "sync_executor_run_seconds_count", **labels) == 1000


@pytest.mark.parametrize(
    ("event", "metric", "count"),
    [
        ("runs_succeeded", "sync_executor_signals_stored_total", 10),
        ("jobs_claimed", "sync_executor_jobs_claimed_total", 2),
        ("rate_limited", "sync_executor_rate_limits_total", 1),
        ("rate_limited", "sync_executor_rate_limit_wait_seconds_total", 30),
        ("job_released", "sync_executor_jobs_released_total", 1),
        ("job_cancelled", "sync_executor_jobs_cancelled_total", 1),
        ("job_fenced", "sync_executor_jobs_fenced_total", 1),
        ("jobs_reaped", "sync_executor_jobs_reaped_total", 2),
    ],
)
def test_each_event_counts_in_its_metric(
    telemetry: Telemetry, event: str, metric: str, count: int
) -> None:
    EVENTS[event](telemetry)

    assert value(telemetry, metric, provider_slug="tickets") == count


def test_failed_passes_are_counted_by_loop(telemetry: Telemetry) -> None:
    telemetry.loop_failed("claim", OSError("refused"), SECOND)
    telemetry.loop_failed("claim", OSError("refused"), SECOND)

    assert value(telemetry, "sync_engine_loop_failures_total", loop="claim") == 2


def test_a_batch_fills_the_buckets_that_single_values_fill() -> None:
    amounts = [0.0, 0.5, 1.0, 1.1, 5.0, 5.1, 1e9]
    registry = CollectorRegistry()
    batch = BatchHistogram("batch", "", buckets=(1, 5), registry=registry)
    single = BatchHistogram("single", "", buckets=(1, 5), registry=registry)

    batch.observe_all(amounts)
    for amount in amounts:
        single.observe(amount)

    samples = generate_latest(WithoutCreated(registry)).decode().split("# HELP single")
    assert re.findall(r"batch(_.*)", samples[0]) == re.findall(r"single(_.*)", samples[1])


def test_a_provider_that_left_the_queue_reads_zero(telemetry: Telemetry) -> None:
    telemetry.queue_measured({"tickets": 4, "mail": 1}, 9 * SECOND)
    telemetry.queue_measured({"mail": 2}, SECOND)

    name = "sync_executor_queue_depth"
    assert value(telemetry, name, provider_slug="tickets") == 0
    assert value(telemetry, name, provider_slug="mail") == 2
    assert value(telemetry, "sync_executor_queue_age_seconds") == 1


def test_two_engines_in_one_process_do_not_mix() -> None:
    one, other = Telemetry(cell="one"), Telemetry(cell="other")

    one.runs_succeeded("tickets", [1.0], signals=1)

    assert b'sync_engine_info{cell="one"} 1.0' in one.exposition()
    assert b'provider_slug="tickets"' not in other.exposition()


def test_created_samples_are_left_out_without_touching_the_process(telemetry: Telemetry) -> None:
    elsewhere = CollectorRegistry()
    Counter("elsewhere", "", registry=elsewhere)

    telemetry.runs_succeeded("tickets", [1.0], signals=1)

    assert b"_created" not in telemetry.exposition()
    assert b"_created" in generate_latest(elsewhere)


def value(telemetry: Telemetry, name: str, **labels: str) -> float | None:
    return telemetry.registry.get_sample_value(name, labels)


def documented(heading: str) -> dict[str, list[str]]:
    """The rows of the tables under a heading, by what stands first in them."""
    sections = re.split(r"^## ", REFERENCE.read_text(), flags=re.MULTILINE)
    (section,) = (text for text in sections if text.startswith(heading))
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| `")]
    return {row[0].strip(" `"): [cell.strip() for cell in row[1:]] for row in rows}


def words(cell: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", cell))


def public_methods(class_: type) -> set[str]:
    methods = {name for name, _ in inspect.getmembers(class_, inspect.isfunction)}
    return {name for name in methods if not name.startswith("_")}
