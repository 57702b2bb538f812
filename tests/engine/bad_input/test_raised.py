"""What a connector raises is its own connection's affair, whatever it is."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from support.mixed_batch import MixedBatch
from syncline import RateLimited, SyncError, Transient


def circular() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["itself"] = value
    return value


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


class Speechless(Exception):
    def __str__(self) -> str:
        return None  # type: ignore[return-value]


class Deadly(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class Careless(RateLimited):
    def __init__(self) -> None:
        """Forget what the class above needs."""


def dig() -> int:
    return dig() + 1


def raising(error: BaseException) -> Callable[[], Any]:
    def answer() -> Any:
        raise error

    return answer


RAISED: dict[str, tuple[Callable[[], Any], str, str]] = {
    "SystemExit": (raising(SystemExit(3)), "Unexpected", "SystemExit"),
    "KeyboardInterrupt": (raising(KeyboardInterrupt()), "Unexpected", "KeyboardInterrupt"),
    "GeneratorExit": (raising(GeneratorExit()), "Unexpected", "GeneratorExit"),
    "MemoryError": (raising(MemoryError()), "Unexpected", "MemoryError"),
    "RecursionError": (dig, "Unexpected", "RecursionError"),
    "StopIteration": (raising(StopIteration()), "Unexpected", "StopIteration"),
    "a group": (raising(ExceptionGroup("two", [OSError(), OSError()])), "Unexpected", "two"),
    "an unprintable one": (raising(Unprintable()), "Unexpected", "Unprintable"),
    "a speechless one": (raising(Speechless()), "Unexpected", "Speechless"),
    "a deadly one": (raising(Deadly()), "Unexpected", "Deadly"),
    "a careless one": (raising(Careless()), "Careless", ""),
    "10 MB": (raising(Transient("x" * 10_000_000)), "Transient", "xxx"),
    "10 MB of quotes": (raising(Transient('"' * 10_000_000)), "Transient", '"""'),
    "10 MB of controls": (raising(Transient("\x01" * 10_000_000)), "Transient", "\x01"),
    "NUL and surrogates": (raising(Transient("a\0b\ud800c")), "Transient", "a�b?c"),
    "its own cancellation": (raising(asyncio.CancelledError()), "ContractError", "cancelled"),
    "its own timeout": (raising(TimeoutError()), "Timeout", "timed out"),
    "details that hold themselves": (
        raising(SyncError("x", details=circular())),
        "SyncError",
        "x",
    ),
    "details of another kind": (raising(SyncError("x", details=7)), "SyncError", "x"),  # type: ignore[arg-type]
    "details too large": (raising(SyncError("x", details={"a": "y" * 10**7})), "SyncError", "x"),
}


async def test_a_raised_error_fails_its_own_job_alone(batch: MixedBatch) -> None:
    await batch.run({name: answer for name, (answer, _, _) in RAISED.items()})

    for name, (_, error_class, told) in RAISED.items():
        error = batch.jobs[name].error
        assert error["class"] == error_class, (name, error)
        assert told in error["message"], (name, error)
        await batch.assert_nothing_was_stored(name)
    await batch.assert_errors_are_bounded()


HINTS: dict[str, tuple[Any, float]] = {
    "negative": (-1, 5),
    "zero": (0, 5),
    "shorter than the backoff": (2, 5),
    "longer": (60.5, 60.5),
    "words": ("soon", 5),
    "a number as a text": ("60", 60),
    "true": (True, 5),
    "NaN": (float("nan"), 5),
    "infinity": (float("inf"), 86_400),
    "1e18": (1e18, 86_400),
    "an integer of 400 digits": (10**400, 86_400),
    "an integer of 5000 digits": (10**5000, 86_400),
    "a date in 1970": (datetime(1970, 1, 1, tzinfo=UTC), 5),
    "a decimal": (Decimal(60), 60),
}


async def test_a_hint_is_heeded_within_reason(batch: MixedBatch) -> None:
    """The backoff's own 5 s are the least, a day is the most, and what is no number is no hint."""
    await batch.run(
        {
            name: raising(RateLimited("slow down", retry_after_seconds=hint))
            for name, (hint, _) in HINTS.items()
        }
    )

    for name, (_, seconds) in HINTS.items():
        wait = batch.jobs[name].retry_after - batch.world.clock()  # type: ignore[operator]
        assert wait == timedelta(seconds=seconds * 1.05), name  # the dice fall on one half
        await batch.assert_nothing_was_stored(name)
