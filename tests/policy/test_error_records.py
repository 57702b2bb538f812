"""The error that a job keeps: JSON of 4 kB at most, whatever the connector's exception holds."""

import json
from datetime import timedelta
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.world import World, at
from syncline import Permanent, RateLimited, SyncError
from syncline.policy.backoff import Backoff
from syncline.policy.outcome import (
    ErrorRecord,
    Failed,
    FailureRules,
    Retry,
    judge_failure,
    storable_text,
)

NOW = at("12:00")
RULES = FailureRules(Backoff(5, 900, 0.1), None)
MAX_BYTES = 4096

# Every character that Python has: NUL, control characters, lone surrogates and emoji too.
texts = st.text(st.characters(exclude_categories=[]), max_size=5000)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=20
)
WORST = ['"', "\\", "\x01", "\0", "\n", "\x7f", "é", "\ud800", "😀", "\u2028"]


@given(texts, st.none() | st.dictionaries(texts, values), st.integers(0, 10**6))
@example('"' * 5000, {"quotes": '"' * 490}, 10**6)
@example("\x01" * 5000, {"control": "\x01" * 160}, 10**6)
@example("😀" * 5000, {"list": [1] * 490}, 10**6)
def test_any_error_fits_and_can_be_stored(
    message: str, details: dict[str, Any] | None, attempts: int
) -> None:
    error = RateLimited(message, retry_after_seconds=86_400, details=details)

    outcome = judge_failure(error, RULES, attempts=attempts, now=NOW, roll=0.5)

    assert len(outcome.error.encode()) <= MAX_BYTES
    assert "\\u0000" not in outcome.error.replace("\\\\", "")
    assert json.loads(outcome.error)["class"] == "RateLimited"


@pytest.mark.parametrize("character", WORST, ids=ascii)
async def test_postgres_takes_the_worst_of_them(world: World, character: str) -> None:
    longwinded = type("Long" * 1000, (Permanent,), {})
    error = longwinded(character * 5000, details={"d": character * 100})

    outcome = judge_failure(error, RULES, attempts=0, now=NOW, roll=0)

    assert isinstance(outcome, Failed)
    [row] = await world.sql(
        "SELECT octet_length($1::jsonb::text) AS size, $2::jsonb ->> 0 AS reason",
        outcome.error,
        json.dumps([outcome.reason]),
    )
    assert row["size"] <= MAX_BYTES
    assert row["reason"] == outcome.reason


@pytest.mark.parametrize("message", ["a\0b", "\ud800", "\x01" * 5000], ids=["NUL", "half", "long"])
async def test_a_job_ends_and_its_connection_stops_whatever_the_message(
    world: World, message: str
) -> None:
    connection = await world.connection()
    world.connector.script.append(Permanent(message))
    job = await world.engine.trigger(connection.id)

    await world.run_due()

    stopped = await world.engine.connections.get(connection.id)
    assert (await world.get_job(job.id)).status == "failed"
    assert stopped.status == "error"
    assert stopped.status_reason["why"] == storable_text(message, 2000)


@pytest.mark.parametrize("character", WORST, ids=ascii)
@pytest.mark.parametrize("limit", [1, 10, 2000])
def test_text_is_cut_to_bytes_as_json_holds_it(character: str, limit: int) -> None:
    text = storable_text(character * 3000, limit)

    size = len(json.dumps(text, ensure_ascii=False).encode()) - 2
    assert limit - 6 < size <= limit


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=300))
def test_text_that_fits_is_kept(text: str) -> None:
    assert storable_text(text, 2000) == text


def test_a_record_says_what_happened() -> None:
    record = ErrorRecord(
        "RateLimited",
        "slow down",
        attempt=3,
        time=NOW,
        hint=timedelta(seconds=90),
        hinted=True,
        details={"status": 429},
    )

    assert json.loads(record.to_json()) == {
        "class": "RateLimited",
        "message": "slow down",
        "attempt": 3,
        "time": "2025-01-01T12:00:00Z",
        "hint": 90.0,
        "hinted": True,
        "details": {"status": 429},
    }


class Broken(dict[str, Any]):
    """A mapping that cannot be read."""

    def keys(self) -> Any:
        raise OSError("no keys today")


@pytest.mark.parametrize(
    ("details", "reason"),
    [
        pytest.param({"text": "x" * 1000}, "over the limit", id="too large"),
        pytest.param({"a": "\0"}, "NUL", id="NUL"),
        pytest.param({"a": "\ud800"}, "surrogate", id="a lone surrogate"),
        pytest.param({"a": float("nan")}, "JSON compliant", id="NaN"),
        pytest.param({"a": object()}, "not JSON serializable", id="an object"),
        pytest.param({"a": 10**5000}, "4300 digits", id="a number too long to read back"),
        pytest.param("text", "ValueError", id="no mapping"),
        pytest.param(7, "TypeError", id="a number"),
        pytest.param(MappingProxyType(Broken()), "no keys today", id="a mapping that breaks"),
    ],
)
def test_details_that_cannot_be_stored_are_left_out(details: Any, reason: str) -> None:
    outcome = judge_failure(SyncError("x", details=details), RULES, attempts=0, now=NOW, roll=0)

    assert isinstance(outcome, Retry)
    record = json.loads(outcome.error)
    assert record["message"] == "x"
    assert reason in record["details"]["omitted"]


@pytest.mark.parametrize("details", [{}, {"a": None}, {"ü": [1, 2.5, True]}, MappingProxyType({})])
def test_details_that_can_be_stored_are_kept(details: Any) -> None:
    outcome = judge_failure(SyncError("x", details=details), RULES, attempts=0, now=NOW, roll=0)

    assert json.loads(outcome.error)["details"] == details


@pytest.mark.parametrize(
    "asked", ["60", Decimal(60), timedelta(minutes=1)], ids=["text", "decimal", "timedelta"]
)
def test_a_hint_of_any_kind_is_waited_for(asked: Any) -> None:
    outcome = judge_failure(
        RateLimited("slow", retry_after_seconds=asked), RULES, attempts=0, now=NOW, roll=0
    )

    assert isinstance(outcome, Retry)
    assert outcome.retry_after == NOW + timedelta(minutes=1)
    assert json.loads(outcome.error)["hint"] == 60


def test_a_hint_that_is_no_time_is_ignored_and_the_record_says_so() -> None:
    error = RateLimited("slow", retry_after_seconds="\0" * 300, details={"a": 1})

    outcome = judge_failure(error, RULES, attempts=0, now=NOW, roll=0)

    assert isinstance(outcome, Retry)
    assert outcome.retry_after == NOW + timedelta(seconds=5)
    record = json.loads(outcome.error)
    assert "hint" not in record
    assert record["details"]["a"] == 1
    assert "is not a number of seconds" in record["details"]["ignored"]
    assert "\0" not in record["details"]["ignored"]


def test_an_error_whose_own_properties_raise_is_recorded() -> None:
    class Rude(RateLimited):
        @property
        def retry_after_seconds(self) -> Any:
            raise RuntimeError("no")

        @property
        def details(self) -> Any:  # type: ignore[override]
            raise RuntimeError("no")

        def __init__(self) -> None:
            Exception.__init__(self, "slow")

    outcome = judge_failure(Rude(), RULES, attempts=0, now=NOW, roll=0)

    assert isinstance(outcome, Retry)
    assert json.loads(outcome.error)["message"] == "slow"
