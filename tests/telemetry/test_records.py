"""How the engine's story reads as log records and as spans."""

import asyncio
import logging

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from support.telemetry_events import CONNECTION, JOB, SECOND, Spans, fail, run, schedule, tick
from syncline.redaction import mask_secrets
from syncline.telemetry.engine import MAX_SPAN_EVENTS, Telemetry


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture
def telemetry(spans: Spans) -> Telemetry:
    return Telemetry(tracer=spans.tracer)


def test_no_handler_is_installed() -> None:
    names = ("syncline", "syncline.scheduler", "syncline.executor", "syncline.engine")

    assert [logging.getLogger(name).handlers for name in names] == [[], [], [], []]


def test_a_warning_says_which_connection_and_key_and_why(
    telemetry: Telemetry, caplog: pytest.LogCaptureFixture
) -> None:
    telemetry.bad_metadata(CONNECTION, "sync.interval_seconds", "-5 is not from 60 to 86400")

    (record,) = caplog.records
    assert record.getMessage() == (
        f"scheduler.bad_metadata connection_id={CONNECTION} key=sync.interval_seconds "
        "reason='-5 is not from 60 to 86400'"
    )
    assert vars(record)["connection_id"] == str(CONNECTION)
    assert record.pathname == __file__, "the line that spoke, not telemetry's own"


def test_a_value_cannot_pass_for_a_line_of_its_own(
    telemetry: Telemetry, caplog: pytest.LogCaptureFixture
) -> None:
    telemetry.bad_metadata(CONNECTION, "sync.cursor", "x\nscheduler.stopped\x1b[2J")

    assert "\n" not in caplog.records[0].getMessage()
    assert "\x1b" not in caplog.records[0].getMessage()


def test_a_failure_warns_only_when_it_is_terminal(
    telemetry: Telemetry, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "syncline")

    fail(telemetry)
    fail(telemetry, "Permanent", terminal=True)

    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]
    assert "wait_seconds=5.0" in caplog.messages[0]
    assert f"connection_id={CONNECTION}" in caplog.messages[1]


@pytest.mark.parametrize(("level", "traced"), [(logging.INFO, False), (logging.DEBUG, True)])
def test_a_failed_loop_is_told_without_secrets(
    telemetry: Telemetry, caplog: pytest.LogCaptureFixture, level: int, traced: bool
) -> None:
    caplog.set_level(level, "syncline")
    address = "postgresql://sync:" + "hunter2@db.example/app"

    try:
        raise OSError(f"cannot reach {address}")
    except OSError as error:
        telemetry.loop_failed("claim", error, SECOND)

    (record,) = caplog.records
    assert "postgresql://sync:***@db.example/app" in record.getMessage()
    assert "hunter2" not in str(vars(record))
    assert ("Traceback" in vars(record).get("exception", "")) is traced
    assert ("Traceback" in record.getMessage()) is traced


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("postgres://u:p@ss/w@host/db", "postgres://u:***@host/db"),
        ("postgres://:secret@host", "postgres://:***@host"),
        ("host=db password='a b' user=u", "host=db password=*** user=u"),
        ("?user=u&password=abc&x=1", "?user=u&password=***&x=1"),
        ('{"access_token": "abc", "n": 1}', '{"access_token": ***, "n": 1}'),
        ("Authorization: Bearer abc.def", "Authorization: ***"),
        ("https://host:8080/path", "https://host:8080/path"),
        ("password authentication failed", "password authentication failed"),
    ],
)
def test_secrets_are_masked(text: str, masked: str) -> None:
    assert mask_secrets(text) == masked


def test_a_scheduled_run_is_an_event_of_its_tick(telemetry: Telemetry, spans: Spans) -> None:
    tick(telemetry)

    span = spans.only()
    (event,) = span.events
    assert (span.name, event.name) == ("scheduler.tick", "scheduler.job_scheduled")
    assert event.attributes == {
        "connection_id": str(CONNECTION),
        "jitter_seconds": 45,
        "base_interval_seconds": 900,
        "jitter_pct_min": 0.0,
        "jitter_pct_max": 0.2,
        "slot": "2024-05-01T12:00:00+00:00",
        "next_due_at": "2024-05-01T12:00:00+00:00",
        "scheduled_at": "2024-05-01T12:00:45+00:00",
        "next_run_at": "2024-05-01T12:15:00+00:00",
    }
    assert (span.attributes or {})["overdue"] == 5


def test_a_large_tick_has_a_bounded_span_and_a_whole_log(
    telemetry: Telemetry, spans: Spans, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "syncline")

    with telemetry.tick():
        for _ in range(MAX_SPAN_EVENTS + 5):
            schedule(telemetry)

    assert len(spans.only().events) == MAX_SPAN_EVENTS
    assert len(caplog.records) == MAX_SPAN_EVENTS + 5


def test_each_tick_has_its_own_share_of_events(telemetry: Telemetry, spans: Spans) -> None:
    with telemetry.tick():
        for _ in range(MAX_SPAN_EVENTS):
            schedule(telemetry)
    tick(telemetry)

    assert [len(span.events) for span in spans.all()] == [MAX_SPAN_EVENTS, 1]


def test_a_span_of_the_application_is_left_alone(telemetry: Telemetry, spans: Spans) -> None:
    with spans.tracer.start_as_current_span("application"):
        with telemetry.tick():
            pass
        telemetry.tick_finished(due=0, scheduled=0, skipped=0, overdue=0, duration=SECOND)

    assert {span.name: len(span.attributes or {}) for span in spans.all()} == {
        "scheduler.tick": 1,
        "application": 0,
    }


def test_a_run_that_fails_is_marked_by_its_error_class_alone(
    telemetry: Telemetry, spans: Spans
) -> None:
    with pytest.raises(ValueError, match="hunter2"):
        run(telemetry, ValueError("hunter2"))

    assert spans.only().status.description == "ValueError"
    assert "hunter2" not in spans.only().to_json()


def test_a_cancelled_run_is_no_failure(telemetry: Telemetry, spans: Spans) -> None:
    with pytest.raises(asyncio.CancelledError):
        run(telemetry, asyncio.CancelledError())

    assert spans.only().status.is_unset


def test_without_an_sdk_a_run_enters_no_span() -> None:
    telemetry = Telemetry(tracer=trace.NoOpTracer())

    with telemetry.run(JOB, CONNECTION, "tickets", "full"):
        assert trace.get_current_span() is trace.INVALID_SPAN


def test_a_run_that_is_not_sampled_keeps_its_callees_unsampled() -> None:
    provider = TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False)
    telemetry = Telemetry(tracer=provider.get_tracer("test"))

    with telemetry.run(JOB, CONNECTION, "tickets", "full"):
        current = trace.get_current_span()

    assert current.get_span_context().is_valid
    assert not current.is_recording()
