"""Times and durations as people type them into filters, and the link of a filtered list."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

from syncline.errors import Invalid

LENGTH = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?) ?(ms|s|min|m|h|d)")
UNITS = {"ms": 0.001, "s": 1, "min": 60, "m": 60, "h": 3600, "d": 86_400}


def read_duration(field: str, text: str) -> timedelta | None:
    """Return the duration that a text such as `30s` or `1.5 h` names; None if it is empty."""
    if not text.strip():
        return None
    found = LENGTH.fullmatch(text.strip())
    if found is None:
        raise Invalid(field, f"is {text!r}; use a duration such as 30s, 5min, 2h or 7d")
    try:
        return timedelta(seconds=float(found[1]) * UNITS[found[2]])
    except OverflowError:
        raise Invalid(field, f"is {text!r}; that is too long") from None


def read_time(field: str, text: str, now: datetime) -> datetime | None:
    """Return the time that a text names: an instant, UTC unless it has a zone, or an age."""
    if not text.strip():
        return None
    try:
        if LENGTH.fullmatch(text.strip()):
            return now - (read_duration(field, text) or timedelta())
        found = datetime.fromisoformat(text.strip())
    except (ValueError, OverflowError):
        usual = "2026-11-18T10:00 (UTC), or an age such as 30min, 24h or 7d"
        raise Invalid(field, f"is {text!r}; use a time such as {usual}") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def link(path: str, wanted: Mapping[str, str | None], **more: str | None) -> str:
    """Return the address of a list with these filters; empty ones are left out."""
    chosen = {name: value for name, value in {**wanted, **more}.items() if value}
    return f"{path}?{urlencode(chosen)}" if chosen else path
