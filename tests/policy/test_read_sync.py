"""`metadata.sync` as people leave it: good values are used, bad ones told and left out."""

import json
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.world import at
from syncline.policy.schedule import Complaint, ScheduleRules, StoredSync, SyncOptions, read_sync

RULES = ScheduleRules(
    default_interval=timedelta(seconds=900),
    maximum_interval=timedelta(seconds=86_400),
    jitter_pct_min=Decimal(0),
    jitter_pct_max=Decimal("0.2"),
)
KEYS = ("interval_seconds", "next_run_at", "last_jitter_seconds", "first_activated_at")

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=25,
)


@pytest.mark.parametrize("seconds", [60, 61, 900, 86_399, 86_400])
def test_an_interval_within_bounds_is_used(seconds: int) -> None:
    options = _read(interval_seconds=seconds)

    assert options == SyncOptions(timedelta(seconds=seconds), False, None, ())


@pytest.mark.parametrize("metadata", [{}, {"sync": {}}, {"sync": {"interval_seconds": None}}])
def test_without_one_the_default_is_used_in_silence(metadata: Any) -> None:
    assert read_sync(_stored(metadata), RULES) == SyncOptions(
        timedelta(minutes=15), False, None, ()
    )


@pytest.mark.parametrize(
    "value",
    [
        0,
        -5,
        59,
        86_401,
        10**9,
        10**40,
        900.5,
        900.0,
        True,
        False,
        "900",
        "",
        "often",
        [900],
        {},
        [],
        {"seconds": 900},
        "x" * 5000,
    ],
    ids=lambda value: repr(value)[:20],
)
def test_a_bad_interval_gives_way_to_the_default(value: Any) -> None:
    options = _read(interval_seconds=value)

    assert options.interval == timedelta(minutes=15)
    assert options.interval_is_bad
    (complaint,) = options.complaints
    assert complaint.key == "sync.interval_seconds"
    assert "is not an integer from 60 to 86400; 900 is used instead" in complaint.reason
    assert len(complaint.reason) < 120


def test_the_bounds_are_those_of_the_settings() -> None:
    rules = ScheduleRules(timedelta(seconds=600), timedelta(hours=1), Decimal(0), Decimal(0))

    options = read_sync(_stored({"sync": {"interval_seconds": 7200}}), rules)

    assert options.interval == timedelta(seconds=600)
    assert options.complaints[0].reason == (
        "7200 is not an integer from 60 to 3600; 600 is used instead"
    )


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2025-01-01T10:15:00Z", at("10:15")),
        ("2025-01-01T10:15:00+00:00", at("10:15")),
        ("2025-01-01t10:15:00z", at("10:15")),
        ("2025-01-01T10:15:00.250Z", at("10:15") + timedelta(milliseconds=250)),
        ("2025-01-01T10:15:00.1234567Z", at("10:15") + timedelta(microseconds=123_456)),
    ],
)
def test_a_time_in_utc_is_used(text: str, instant: datetime) -> None:
    options = _read(first_activated_at=text, next_run_at=text)

    assert options.first_activated_at == instant
    assert options.complaints == ()


@pytest.mark.parametrize(
    "value",
    [
        "2025-01-01T10:15:00",
        "2025-01-01T10:15:00+02:00",
        "2025-01-01",
        "2025-13-01T00:00:00Z",
        "2025-01-01T25:00:00Z",
        "2025-01-01T10:15Z",
        "20250101T101500Z",
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59Z",
        "infinity",
        "yesterday",
        "",
        "\N{FULLWIDTH DIGIT TWO}025-01-01T10:15:00Z",
        "x" * 5000,
        1735726500,
        1.5,
        True,
        [],
        {},
    ],
    ids=lambda value: repr(value)[:30],
)
@pytest.mark.parametrize("key", ["first_activated_at", "next_run_at"])
def test_any_other_time_counts_as_absent(key: str, value: Any) -> None:
    options = _read(**{key: value})

    assert options.first_activated_at is None
    (complaint,) = options.complaints
    assert complaint.key == f"sync.{key}"
    assert complaint.reason.endswith("is not RFC 3339 in UTC")
    assert len(complaint.reason) < 120


@pytest.mark.parametrize("value", [0, 1, 180, None])
def test_a_jitter_is_taken_as_written(value: Any) -> None:
    assert _read(last_jitter_seconds=value).complaints == ()


@pytest.mark.parametrize("value", [-1, 1.5, True, "1", "", [], {}], ids=repr)
def test_a_bad_jitter_is_told(value: Any) -> None:
    (complaint,) = _read(last_jitter_seconds=value).complaints

    assert complaint.key == "sync.last_jitter_seconds"
    assert complaint.reason == "is not an integer of 0 or more"


@pytest.mark.parametrize(
    ("metadata", "key", "reason"),
    [
        pytest.param([], "metadata", "is array, not an object", id="metadata a list"),
        pytest.param("x", "metadata", "is string, not an object", id="metadata a text"),
        pytest.param(1, "metadata", "is number, not an object", id="metadata a number"),
        pytest.param(None, "metadata", "is null, not an object", id="metadata JSON null"),
        pytest.param({"sync": []}, "sync", "is array, not an object", id="sync a list"),
        pytest.param({"sync": "x"}, "sync", "is string, not an object", id="sync a text"),
        pytest.param({"sync": True}, "sync", "is boolean, not an object", id="sync a boolean"),
        pytest.param({"sync": None}, "sync", "is null, not an object", id="sync null"),
    ],
)
def test_what_is_no_object_is_told_once(metadata: Any, key: str, reason: str) -> None:
    options = read_sync(_stored(metadata), RULES)

    assert [(complaint.key, complaint.reason) for complaint in options.complaints] == [
        (key, reason)
    ]
    assert options.interval == timedelta(minutes=15)
    assert not options.interval_is_bad


def test_metadata_that_is_missing_altogether_is_told_as_null() -> None:
    options = read_sync(StoredSync(None, *[None] * 5), RULES)

    assert options.complaints == (Complaint("metadata", "is null, not an object"),)


def test_each_bad_key_is_told_by_itself() -> None:
    options = _read(**dict.fromkeys(KEYS, "nonsense"))

    assert {complaint.key for complaint in options.complaints} == {f"sync.{key}" for key in KEYS}
    assert len(options.complaints) == len(KEYS)


@given(st.dictionaries(st.sampled_from(KEYS), json_values))
def test_whatever_is_written_is_read(sync: dict[str, Any]) -> None:
    options = _read(**sync)

    assert timedelta(seconds=60) <= options.interval <= timedelta(days=1)
    assert {complaint.key.removeprefix("sync.") for complaint in options.complaints} <= set(sync)


BOUNDS = {"min_seconds": 300, "max_seconds": 1000}


@pytest.mark.parametrize(
    ("planned", "last_status", "was_empty", "effective"),
    [
        ("null", "succeeded", True, 300),  # nothing was planned with it yet
        ("300", "succeeded", True, 600),
        ("600", "succeeded", True, 1000),
        ("1000", "succeeded", True, 1000),
        ("600", "succeeded", False, 300),
        ("600", "completed", None, 300),  # ended by hand: who knows what it brought
        ("600", "failed", None, 600),
        ("600", "cancelled", None, 600),
        ("600", None, None, 1000),  # its job is gone
        ("299", "succeeded", True, 300),
        ("1001", "succeeded", True, 300),
        ('"600"', "succeeded", True, 300),
    ],
)
def test_an_adaptive_interval_follows_the_last_run(
    planned: str, last_status: str | None, was_empty: bool | None, effective: int
) -> None:
    options = _read_adaptive(BOUNDS, planned, last_status, was_empty)

    assert options.interval == timedelta(seconds=effective)
    assert options.check_after == timedelta(seconds=300)
    assert not options.complaints


@pytest.mark.parametrize(
    "bounds",
    [
        {},
        [],
        True,
        300,
        "often",
        {"min_seconds": 300},
        {"min_seconds": 300, "max_seconds": 299},
        {"min_seconds": 59, "max_seconds": 300},
        {"min_seconds": 300, "max_seconds": 86_401},
        {"min_seconds": 300.0, "max_seconds": 600},
        {"min_seconds": True, "max_seconds": 600},
        {"min_seconds": "300", "max_seconds": 600},
        {"min_seconds": 300, "max_seconds": 10**900},
        {**BOUNDS, "note": "x" * 5000},
    ],
    ids=lambda value: repr(value)[:40],
)
def test_bad_bounds_of_an_adaptive_interval_count_as_absent(bounds: Any) -> None:
    options = _read_adaptive(bounds, "600", "succeeded", True)

    assert options == SyncOptions(timedelta(minutes=15), False, None, options.complaints)
    (complaint,) = options.complaints
    assert complaint.key == "sync.adaptive"
    assert "integers from 60 to 86400" in complaint.reason
    assert len(complaint.reason) < 200


def test_an_adaptive_interval_of_null_is_absent_in_silence() -> None:
    assert _read_adaptive(None, "600", "succeeded", True) == _read()


def _read_adaptive(
    bounds: Any, planned: str, last_status: str | None, was_empty: bool | None
) -> SyncOptions:
    texts = [json.dumps(bounds)[:1000], planned, last_status, was_empty]
    return read_sync(_stored({"sync": {}})._replace(cadence=json.dumps(texts)), RULES)


def _read(**sync: Any) -> SyncOptions:
    return read_sync(_stored({"sync": sync}), RULES)


def _stored(metadata: Any) -> StoredSync:
    """Return metadata as the tick reads it: kinds, and at most 64 characters of each value."""
    sync = metadata.get("sync") if isinstance(metadata, dict) else None
    found = sync if isinstance(sync, dict) else {}
    texts = {key: json.dumps(found[key])[:64] if key in found else None for key in KEYS}
    has_sync = isinstance(metadata, dict) and "sync" in metadata
    return StoredSync(_kind(metadata), _kind(sync) if has_sync else None, **texts)


def _kind(value: Any) -> str:
    kinds = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}
    return kinds.get(type(value), "number")
