"""Texts for people and machines: times, durations, errors, one safe line."""

from datetime import UTC, datetime, timedelta
from typing import Any

from syncline.redaction import mask_secrets

UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def rfc3339(instant: datetime) -> str:
    """Return the instant in UTC, ending in Z."""
    return instant.astimezone(UTC).isoformat().removesuffix("+00:00") + "Z"


def ago(now: datetime, instant: datetime) -> str:
    return f"{_rounded(now - instant)} ago"


def until(now: datetime, instant: datetime) -> str:
    return "now" if instant <= now else f"in {_rounded(instant - now)}"


def duration(length: timedelta) -> str:
    """Return a duration in its largest unit, or in milliseconds below a second."""
    seconds = length.total_seconds()
    return f"{max(seconds, 0) * 1000:.0f} ms" if seconds < 1 else _rounded(length)


def span(length: timedelta) -> str:
    """Return a duration in its largest unit, with one decimal."""
    seconds = max(length.total_seconds(), 0)
    size, unit = next((entry for entry in UNITS if seconds >= entry[0]), (1, "s"))
    return f"{seconds / size:.1f}".removesuffix(".0") + f" {unit}"


def _rounded(length: timedelta) -> str:
    seconds = max(length.total_seconds(), 0)
    if seconds < 10:
        return f"{seconds:.1f} s"
    size, unit = next(entry for entry in UNITS if seconds >= entry[0])
    return f"{seconds / size:.0f} {unit}"


def error_text(error: Any) -> str:
    """Return a job's error as one line. The column may hold any JSON."""
    if error is None:
        return ""
    if isinstance(error, dict) and "message" in error:
        kind, message = error.get("class"), error["message"]
        return one_line(f"{kind}: {message}" if kind else str(message))
    return one_line(str(error))


def reason_text(reason: Any) -> str:
    """Return a connection's status reason, or a job's error, as one line."""
    if isinstance(reason, dict) and "why" in reason:
        return one_line(f"{reason['why']}{_before_text(reason.get('before'))}")
    return error_text(reason)


def _before_text(before: Any) -> str:
    """Return the trouble that a connection was in when it was paused."""
    if not isinstance(before, dict) or not before.get("status"):
        return ""
    reason = before.get("reason")
    why = reason.get("why") if isinstance(reason, dict) else reason
    return f" (before: {before['status']}{f', {why}' if why else ''})"


def one_line(text: str) -> str:
    """Return the text in one line, with secrets masked and control characters escaped."""
    return printable(" ".join(mask_secrets(text).split()))


def printable(line: str) -> str:
    """Return the line with unprintable characters written as escapes."""
    if line.isprintable():
        return line
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in line)


def shortened(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
