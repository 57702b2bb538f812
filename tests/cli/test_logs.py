"""How the command line shows logs."""

import io
import json
import logging
from typing import Any

import pytest

from support.telemetry_events import CONNECTION, EVENTS, SECOND, Spans, tick
from syncline.cli.logs import rendered_logs
from syncline.telemetry.engine import Telemetry

ELSEWHERE = logging.getLogger("elsewhere")
ADDRESS = "postgresql://sync:" + "hunter2@db.example/app"


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


def test_json_has_an_object_a_line_with_the_fields_of_the_event(stream: io.StringIO) -> None:
    with rendered_logs(json=True, stream=stream):
        Telemetry().bad_metadata(CONNECTION, "sync.interval_seconds", "-5 is too short")

    (line,) = lines(stream)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "scheduler.bad_metadata",
        "level": "warning",
        "logger": "syncline.scheduler",
        "cell": "syncline",
        "connection_id": str(CONNECTION),
        "key": "sync.interval_seconds",
        "reason": "-5 is too short",
    }


def test_every_event_can_be_rendered(stream: io.StringIO) -> None:
    with rendered_logs(json=True, level="debug", stream=stream):
        for happen in EVENTS.values():
            happen(Telemetry())

    assert {line["event"] for line in lines(stream)} >= {"scheduler.tick", "engine.loop_failed"}


def test_the_console_shows_each_field_once(stream: io.StringIO) -> None:
    with rendered_logs(stream=stream):
        Telemetry().tick_finished(due=3, scheduled=2, skipped=1, overdue=0, duration=SECOND)

    text = stream.getvalue()
    assert text.endswith(
        "scheduler.tick cell=syncline due=3 scheduled=2 skipped=1 overdue=0 milliseconds=1000.0\n"
    )
    assert "\x1b" not in text, "no colours where nobody sees them"


def test_levels_are_ours_from_info_and_everybody_elses_from_warning(stream: io.StringIO) -> None:
    with rendered_logs(json=True, stream=stream):
        tick(Telemetry())  # tells of its run at debug
        ELSEWHERE.info("quiet")
        ELSEWHERE.warning("loud")

    assert [line["event"] for line in lines(stream)] == ["scheduler.tick", "loud"]


def test_a_record_names_the_span_it_was_logged_in(stream: io.StringIO) -> None:
    spans = Spans()

    with rendered_logs(json=True, level="debug", stream=stream):
        tick(Telemetry(tracer=spans.tracer))

    span = spans.only().context
    assert span is not None
    for line in lines(stream):
        assert line["trace_id"] == format(span.trace_id, "032x")
        assert line["span_id"] == format(span.span_id, "016x")


@pytest.mark.parametrize("as_json", [True, False], ids=["json", "console"])
def test_secrets_are_masked_in_texts_fields_and_tracebacks(
    stream: io.StringIO, as_json: bool
) -> None:
    with rendered_logs(json=as_json, stream=stream):
        try:
            raise OSError(ADDRESS)
        except OSError:
            ELSEWHERE.exception("cannot reach %s", ADDRESS, extra={"address": ADDRESS})

    assert "hunter2" not in stream.getvalue()
    assert "OSError: postgresql://sync:***@db.example/app" in stream.getvalue()


def test_nothing_logged_can_forge_a_line_or_steer_the_terminal(stream: io.StringIO) -> None:
    with rendered_logs(stream=stream):
        ELSEWHERE.warning("one\ntwo \x1b[2J", extra={"name_of_it": "\x1b[31m"})

    assert stream.getvalue().count("\n") == 1
    assert "\x1b" not in stream.getvalue()
    assert r"one\ntwo \x1b[2J" in stream.getvalue()


def test_a_reader_that_went_away_disturbs_nobody(capfd: pytest.CaptureFixture[str]) -> None:
    class Gone(io.StringIO):
        def write(self, _text: str) -> int:
            raise BrokenPipeError

    with rendered_logs(stream=Gone()):
        ELSEWHERE.warning(ADDRESS)

    assert capfd.readouterr().err == ""


def test_logging_is_left_as_it_was(stream: io.StringIO) -> None:
    root, own = logging.getLogger(), logging.getLogger("syncline")
    before = root.level, own.level, list(root.handlers)

    with rendered_logs(level="debug", stream=stream):
        assert own.getEffectiveLevel() == logging.DEBUG

    assert (root.level, own.level, list(root.handlers)) == before


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]
