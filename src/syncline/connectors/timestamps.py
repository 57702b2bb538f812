"""Instants as providers write them: text with or without a zone, or numbers since 1970."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any

MILLISECONDS_FROM = 100_000_000_000  # in seconds that would be the year 5138


def read_instant(value: Any) -> datetime | None:
    """Return an aware instant, or None if the value is not one; text without a zone is UTC."""
    try:
        if isinstance(value, str):
            return _read_text(value.strip())
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value / (1000 if value >= MILLISECONDS_FROM else 1), UTC)
    except (ValueError, OverflowError, OSError):
        pass
    return None


def later(one: Any, other: Any) -> Any:
    """Return the larger value of a cursor field, as it was written."""
    if one is None or other is None:
        return other if one is None else one
    if type(one) is type(other) and not isinstance(one, str):
        return max(one, other)
    first, second = read_instant(one), read_instant(other)
    if first is not None and second is not None:
        return one if first >= second else other
    return max(str(one), str(other))


def latest(seen: Any, values: Iterable[Any]) -> Any:
    """Return the largest of many values, like `later`, and read the largest so far only once."""
    instant: datetime | None = None  # of `seen`, once it was read
    for value in values:
        are_texts = type(seen) is str and type(value) is str
        other = read_instant(value) if are_texts else None
        if instant is None and other is not None:
            instant = read_instant(seen)
        if instant is None or other is None:
            seen, instant = later(seen, value), None
        elif other > instant:
            seen, instant = value, other
    return seen


def earlier(value: Any, seconds: float) -> Any:
    """Return a cursor field's value some seconds earlier, in the same form."""
    instant = read_instant(value)
    if not seconds or instant is None:
        return value
    if isinstance(value, str):
        before = instant - timedelta(seconds=seconds)
        return before.isoformat().replace("+00:00", "Z")
    return value - type(value)(seconds * (1000 if value >= MILLISECONDS_FROM else 1))


@lru_cache(maxsize=1_000)  # the time of a record is often its version too
def _read_text(text: str) -> datetime | None:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        instant = parsedate_to_datetime(text)
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)
