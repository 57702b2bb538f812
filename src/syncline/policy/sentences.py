"""Instants, errors and reasons as parts of the sentences of an explanation."""

from datetime import UTC, datetime
from typing import Any

from syncline.redaction import mask_secrets
from syncline.text import span

LONGEST_LINE = 300


def moment(instant: datetime, now: datetime) -> str:
    """Return `at`, the instant, and how far away it is."""
    return f"at {instant_text(instant, now)}"


def instant_text(instant: datetime, now: datetime) -> str:
    """Return the instant and how far away it is, to follow `since` or `at`."""
    shown = instant.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    if instant > now:
        return f"{shown} (in {span(instant - now)})"
    return f"{shown} ({span(now - instant)} ago)"


def error_line(error: Any) -> str:
    """Return a job's error as one line; the column may hold any JSON."""
    if isinstance(error, dict) and "message" in error:
        kind, message = error.get("class"), error["message"]
        return line_of(f"{kind}: {message}" if kind else str(message))
    return "" if error is None else line_of(str(error))


def reason_line(reason: Any) -> str:
    """Return why a connection has its status, by whom and since when, as far as known."""
    if not isinstance(reason, dict):
        return "" if reason is None else line_of(str(reason))
    shown = [str(reason["why"])] if reason.get("why") else []
    shown += [f"by {reason['by']}"] if reason.get("by") else []
    shown += [f"since {reason['since']}"] if reason.get("since") else []
    return line_of(", ".join(shown))


def line_of(text: str) -> str:
    line = " ".join(mask_secrets(text, 10 * LONGEST_LINE).split())
    return line if len(line) <= LONGEST_LINE else line[: LONGEST_LINE - 1] + "…"
