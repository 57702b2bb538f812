"""How long a provider asks us to wait, in the many forms that providers use."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

EPOCH_FROM = 1_000_000_000  # larger numbers are instants; no limit resets after 30 years
EPOCH_MILLISECONDS_FROM = 100_000_000_000
LONGEST_VALUE = 200  # characters of a header
DURATION = re.compile(
    r"(?:(\d++)h)?(?:(\d++)m(?!s))?(?:(\d++(?:\.\d++)?)s)?(?:(\d++(?:\.\d++)?)ms)?"
)
NAMED = re.compile(r"(?:^|[;,\s])(r|remaining|t|reset|limit)\s*+=\s*+(\d++)")
NUMBER = re.compile(r"\s*+\d{1,18}+(\.\d++)?\s*+", re.ASCII)
WAITS = ("retry-after", "x-retry-after", "x-ratelimit-retry-after", "x-rate-limit-retry-after")
MILLISECOND_WAITS = ("retry-after-ms", "x-ms-retry-after-ms")
RESETS = (
    "ratelimit-reset",
    "x-ratelimit-reset-after",
    "x-ratelimit-reset",
    "x-rate-limit-reset",
    "x-ratelimit-reset-requests",
    "x-ratelimit-reset-tokens",
)
REMAINING = ("ratelimit-remaining", "x-ratelimit-remaining", "x-rate-limit-remaining")
RESETS_OF_REQUESTS = RESETS[:4]
LIMITS = ("ratelimit-limit", "x-ratelimit-limit", "x-rate-limit-limit")
LONGEST_RESET = 31 * 86_400.0  # seconds


class Remainder(NamedTuple):
    """What a provider says: so many calls are left for so many seconds, of so many in all."""

    calls: float
    seconds: float
    limit: float | None


def wait_seconds(headers: Mapping[str, str], *, now: datetime) -> float | None:
    """Return how long a response's headers ask us to wait, or None if they do not.

    An explicit wait wins over a reset. Instants are relative to the response's own `Date`, which
    is the provider's clock, or to `now` if there is none.
    """
    now = _date(headers.get("date", "")) or now
    for name in WAITS:
        if (seconds := _seconds(headers.get(name), now)) is not None:
            return seconds
    for name in MILLISECOND_WAITS:
        if (milliseconds := _number(headers.get(name))) is not None:
            return max(0.0, milliseconds / 1000)
    found = [_seconds(headers.get(name), now) for name in RESETS]
    found.append(_seconds(_structured(headers).get("reset"), now))
    return max((seconds for seconds in found if seconds is not None), default=None)


def wait_in_body(body: Any) -> float | None:
    """Return the wait in a JSON body, where some providers put it."""
    if not isinstance(body, dict):
        return None
    for name, unit in (("retry_after_ms", 0.001), ("retry_after", 1), ("retryAfter", 1)):
        value = body.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
            return value * unit
    return None


def is_exhausted(headers: Mapping[str, str]) -> bool:
    """Return whether the headers say that no requests remain."""
    values = [headers.get(name) for name in REMAINING]
    values.append(_structured(headers).get("remaining"))
    return any(text is not None and _number(text) == 0 for text in values)


def remaining_calls(headers: Mapping[str, str], *, now: datetime) -> Remainder | None:
    """Return how many calls a response's headers say are left, and for how many seconds.

    None if they do not say both. Of several numbers, the lowest counts.
    """
    structured = _structured(headers)
    values = [_number(headers.get(name)) for name in REMAINING]
    values.append(_number(structured.get("remaining")))
    left = min((value for value in values if value is not None), default=None)
    if left is None:
        return None
    now = _date(headers.get("date", "")) or now
    spans = [_seconds(headers.get(name), now) for name in RESETS_OF_REQUESTS]
    spans.append(_seconds(structured.get("reset"), now))
    seconds = max((span for span in spans if span is not None), default=None)
    limits = [_number(headers.get(name)) for name in LIMITS]
    limits.append(_number(structured.get("limit")))
    limit = next((value for value in limits if value is not None), None)
    return None if seconds is None else Remainder(left, min(seconds, LONGEST_RESET), limit)


def _structured(headers: Mapping[str, str]) -> dict[str, str]:
    """Parse the single `RateLimit` header: `limit=9, remaining=0` or `"a";r=0;t=5`."""
    named = {"r": "remaining", "t": "reset"}
    found = NAMED.findall(headers.get("ratelimit", "")[:LONGEST_VALUE])
    return {named.get(name, name): number for name, number in found}


def _seconds(text: str | None, now: datetime) -> float | None:
    if text is None or len(text) > LONGEST_VALUE or not (text := text.strip()):
        return None
    if (number := _number(text)) is not None:
        return max(0.0, _until(number, now))
    if (match := DURATION.fullmatch(text)) is not None:
        hours, minutes, seconds, milliseconds = (float(part or 0) for part in match.groups())
        return hours * 3600 + minutes * 60 + seconds + milliseconds / 1000
    instant = _date(text)
    return max(0.0, (instant - now).total_seconds()) if instant else None


def _until(number: float, now: datetime) -> float:
    """Read a number as a span, or as an instant in seconds or milliseconds; return seconds."""
    if number >= EPOCH_MILLISECONDS_FROM:
        return number / 1000 - now.timestamp()
    return number - now.timestamp() if number >= EPOCH_FROM else number


def _number(text: str | None) -> float | None:
    if text is None or len(text) > LONGEST_VALUE or not NUMBER.fullmatch(text):
        return None
    return float(text)


def _date(text: str) -> datetime | None:
    if len(text) > LONGEST_VALUE:
        return None
    for parse in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            instant = parse(text)
        except (ValueError, TypeError, IndexError, OverflowError):
            continue
        return instant if instant.tzinfo else instant.replace(tzinfo=UTC)
    return None
