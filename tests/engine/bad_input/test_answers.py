"""What a connector returns is its own connection's affair, whatever it is."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from functools import partial
from itertools import count
from types import MappingProxyType
from typing import Any

import pytest

from support.mixed_batch import HEALTHY_PAGE, AnsweringInThread, MixedBatch
from support.world import at
from syncline import Signal, SyncResult

EAST, WEST = timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


def circular() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["itself"] = value
    return value


def page_with(**changes: Any) -> SyncResult:
    """Return a page of three signals, the middle one changed."""
    good = Signal("seen", at("11:00"), {"n": 1})
    return SyncResult([good, replace(good, **changes), good], next_cursor={"page": 2})


def broken_at_item_7() -> Iterator[Signal]:
    for number in range(6):
        yield Signal("seen", at("11:00"), {"n": number})
    raise RuntimeError("lost the seventh")


def endless() -> Iterator[Signal]:
    return (Signal("seen", at("11:00"), {"n": number}) for number in count())


BAD_PAYLOADS: dict[str, tuple[Any, str]] = {
    "NUL in a value": ({"a": "x\0y"}, "NUL"),
    "NUL in a key": ({"x\0y": 1}, "NUL"),
    "NUL deep inside": ({"a": [{"b": ["x\0"]}]}, "NUL"),
    "a lone surrogate in a value": ({"a": "\ud800"}, "surrogate"),
    "a lone surrogate in a key": ({"\udfff": 1}, "surrogate"),
    "NaN": ({"a": float("nan")}, "not JSON compliant"),
    "infinity": ({"a": [float("inf")]}, "not JSON compliant"),
    "1e5000": ({"a": float("1e5000")}, "not JSON compliant"),
    "a decimal 1e5000": ({"a": Decimal("1e5000")}, "Decimal"),
    "an integer of 5000 digits": ({"a": 10**5000}, "digits"),
    "65 levels": ({"a": nested(64)}, "deeper than 64"),
    "1000 levels": ({"a": nested(1000)}, "deeper than 64"),
    "100000 levels": ({"a": nested(100_000)}, "deeper than 64"),
    "itself": (circular(), "contains itself"),
    "a byte too many": ({"a": "x" * (1_000_000 - 7)}, "over the limit of 1000000"),
    "many bytes in few characters": ({"a": "é" * 500_000}, "over the limit"),
    "a set": ({"a": {1}}, "set"),
    "bytes": ({"a": b"x"}, "bytes"),
    "a time": ({"a": at("11:00")}, "datetime"),
    "a key that is no text": ({("a", "b"): 1}, "keys"),
    "a list": ([1], "list, not a JSON object"),
    "a text": ("text", "str, not a JSON object"),
    "nothing": (None, "NoneType, not a JSON object"),
}
BAD_TIMES: dict[str, tuple[Any, str]] = {
    "no zone": (datetime(2025, 1, 1), "no time zone"),
    "year 0": (datetime(1, 1, 1, tzinfo=EAST), "years 1 to 9999"),
    "year 10000": (datetime(9999, 12, 31, 23, tzinfo=WEST), "years 1 to 9999"),
    "the first moment": (datetime.min.replace(tzinfo=UTC), "years 1 to 9999"),
    "the last moment": (datetime.max.replace(tzinfo=UTC), "years 1 to 9999"),
    "a day": (date(2025, 1, 1), "date, not a datetime"),
    "infinity": (float("inf"), "float, not a datetime"),
    "a text": ("2025-01-01T00:00:00Z", "str, not a datetime"),
    "nothing": (None, "NoneType, not a datetime"),
}
BAD_KEYS: dict[str, tuple[Any, str]] = {
    "empty": ("", "non-empty text"),
    "a number": (42, "not a str; use str"),
    "true": (True, "not a str; use str"),
    "too long": ("k" * 1025, "over 1024 bytes"),
    "too long in bytes": ("é" * 600, "over 1024 bytes"),
    "NUL": ("a\0", "non-empty text"),
    "a lone surrogate": ("\ud800", "non-empty text"),
}
BAD_KINDS: dict[str, tuple[Any, str]] = {
    "empty": ("", "kind"),
    "too long": ("k" * 256, "kind"),
    "NUL": ("a\0b", "kind"),
    "a lone surrogate": ("\udc00", "kind"),
    "nothing": (None, "kind"),
}
BAD_CURSORS: dict[str, tuple[Any, str]] = {
    "a byte too many": ("x" * 63_999, "over the limit of 64000"),
    "NUL": ({"a": "\0"}, "NUL"),
    "a lone surrogate": (["\ud800"], "surrogate"),
    "NaN": (float("nan"), "not JSON compliant"),
    "an integer of 5000 digits": (10**5000, "digits"),
    "100000 levels": (nested(100_000), "deeper than 64"),
    "a time": (at("11:00"), "datetime"),
}
BAD_RESULTS: dict[str, tuple[Callable[[], Any], str]] = {
    "None": (lambda: None, "NoneType, not a SyncResult"),
    "a dict": (lambda: {"signals": []}, "dict, not a SyncResult"),
    "a text": (lambda: "done", "str, not a SyncResult"),
    "a generator": (lambda: endless(), "generator, not a SyncResult"),
    "a class": (lambda: SyncResult, "type, not a SyncResult"),
    "signals of None": (lambda: SyncResult(None), "signals is NoneType"),  # type: ignore[arg-type]
    "signals of a text": (lambda: SyncResult("abc"), "signals is str"),  # type: ignore[arg-type]
    "signals of a dict": (lambda: SyncResult({}), "signals is dict"),
    "a signal that is none": (lambda: SyncResult([{"kind": "x"}]), "signals[0] is dict"),  # type: ignore[list-item]
    "a broken generator": (lambda: SyncResult(broken_at_item_7()), "lost the seventh"),
    "an endless generator": (lambda: SyncResult(endless()), "more than 100 signals"),
    "too many signals": (lambda: SyncResult([*page_with().signals] * 34), "more than 100 signals"),
    "has_more of a text": (lambda: SyncResult(has_more="no"), "has_more is str"),  # type: ignore[arg-type]
    "has_more from nowhere": (lambda: SyncResult(has_more=True), "needs a next_cursor"),
    "has_more in a circle": (lambda: SyncResult((), "before", True), "needs a new cursor"),
}


def bad_answers() -> dict[str, tuple[Callable[[], Any], str]]:
    """Return every bad answer by its name, with what its job is to be told."""
    answers = {f"result: {name}": bad for name, bad in BAD_RESULTS.items()}
    for field, values in {
        "payload": BAD_PAYLOADS,
        "occurred_at": BAD_TIMES,
        "dedupe_key": BAD_KEYS,
        "kind": BAD_KINDS,
    }.items():
        for name, (value, told) in values.items():
            answers[f"{field}: {name}"] = partial(page_with, **{field: value}), told
    for name, (value, told) in BAD_CURSORS.items():
        answers[f"cursor: {name}"] = partial(SyncResult, (), value), told
    return answers


@pytest.mark.engine(max_page_signals=100)
async def test_a_bad_answer_fails_its_own_job_alone(batch: MixedBatch) -> None:
    """All at once, between two healthy ones: nothing of a bad page is stored, and each is named."""
    answers = bad_answers()
    await batch.run({name: answer for name, (answer, _) in answers.items()})

    untold = {
        name: batch.jobs[name].error["message"]
        for name, (_, told) in answers.items()
        if told not in batch.jobs[name].error["message"]
    }
    assert untold == {}
    for name in answers:
        await batch.assert_nothing_was_stored(name)
    await batch.assert_errors_are_bounded()


async def test_an_answer_at_the_limits_is_stored_and_can_be_read_again(batch: MixedBatch) -> None:
    payloads = {
        "64 levels": {"a": nested(63)},
        "a whole megabyte": {"a": "x" * (1_000_000 - 8)},
        "4000 digits": {"a": 10**4000},
        "what only looks like NUL": {"a": "\\u0000", "\\u0000": "\\\\u0000"},
        "every plane": {"a": "é✓😀\x01\x7f\u2028"},
        "tiny and large": {"a": [5e-324, 1e15, 0.1, 2**63]},
        "any mapping": MappingProxyType({"a": 1}),
    }
    await batch.run(
        {name: partial(page_with, payload=payload) for name, payload in payloads.items()}
    )

    for name, payload in payloads.items():
        stored = await batch.world.signals(batch.connections[name])
        assert len(stored) == 3, batch.jobs[name].error
        assert stored[1].payload == dict(payload)


async def test_the_first_of_two_signals_with_one_key_is_stored(batch: MixedBatch) -> None:
    signals = [Signal("seen", at("11:00"), {"n": n}, dedupe_key="same") for n in range(3)]
    await batch.run({"twice": lambda: SyncResult(signals)})

    [stored] = await batch.world.signals(batch.connections["twice"])
    assert stored.payload == {"n": 0}


async def an_hour_later() -> SyncResult:
    return HEALTHY_PAGE


async def test_an_answer_that_is_still_to_come(batch: MixedBatch) -> None:
    """A plain function may hand over a coroutine; an async one has forgotten to await it."""
    await batch.run({"coroutine": an_hour_later})

    job = batch.jobs["coroutine"]
    if isinstance(batch.world.engine.providers["github"], AnsweringInThread):
        assert job.status == "succeeded"
    else:
        assert job.error["message"] == "sync() returned coroutine, not a SyncResult"
        await batch.assert_nothing_was_stored("coroutine")
