"""Formats of numbers, times and JSON on the pages."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from syncline.policy.stats import Figure
from syncline.redaction import mask_secrets
from syncline.text import one_line, printable, shortened

LARGEST_JSON = 200_000
LONGEST_PREVIEW = 160
LARGEST_PREVIEW = 10 * LONGEST_PREVIEW  # before whitespace is collapsed
SIGNS = {"exact": "", "estimate": "≈ ", "at_least": "≥ "}
# The last quote may be missing, because long JSON is cut.
STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?'
TOKEN = re.compile(
    rf"(?P<key>{STRING}(?=:))|(?P<text>{STRING})"
    r"|(?P<number>-?\d[\d.eE+-]*+)|(?P<word>true|false|null)|(?P<other>[\s\S])"
)
LENGTHS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def number(count: int) -> str:
    return f"{count:,}"


def figure(found: Figure) -> str:
    """Return a count, with a sign if it is not exact."""
    shown = round(found.count, -3) if found.kind == "estimate" else found.count
    return f"{SIGNS[found.kind]}{shown:,}"


def instant(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def hour(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%H:%M")


def moment(time: datetime) -> str:
    """Return the start of a minute, an hour or a day."""
    shown = time.astimezone(UTC)
    return shown.strftime("%Y-%m-%d" if shown.hour == shown.minute == 0 else "%m-%d %H:%M")


def seconds(duration: float) -> str:
    """Return a duration with three digits, or whole seconds."""
    if duration < 0.9995:
        return f"{duration * 1000:.3g} ms"
    return f"{duration:.3g} s" if duration < 999.5 else f"{duration:,.0f} s"


def length(seconds: float) -> str:
    """Return a duration in the largest unit that divides it."""
    size, unit = next((entry for entry in LENGTHS if seconds % entry[0] == 0), (1, "s"))
    return f"{seconds / size:g} {unit}"


def age(now: datetime, since: datetime | None) -> timedelta | None:
    return now - since if since is not None else None


def percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else ""


def short_id(id_: UUID) -> str:
    """Return the start of an id, which is its time, and its end, which tells ids of a moment apart.

    The search finds ids by this form.
    """
    return f"{str(id_)[:8]}…{str(id_)[-4:]}"


def spaced(word: str) -> str:
    return one_line(word.replace("_", " "))


def preview(value: Any) -> str:
    """Return the start of a JSON value as one line."""
    return shortened(one_line(mask_secrets(_dumped(value, None), LARGEST_PREVIEW)), LONGEST_PREVIEW)


def json_text(value: Any) -> str:
    """Return indented JSON, with secrets masked and very long text cut."""
    text = mask_secrets(_dumped(value, 2), LARGEST_JSON + 1)
    lines = (printable(line) for line in text[:LARGEST_JSON].split("\n"))
    return "\n".join(lines) + ("\n… (cut)" if len(text) > LARGEST_JSON else "")


def lines(text: str) -> str:
    """Return text of several lines, with secrets masked and control characters escaped."""
    return "\n".join(printable(line) for line in mask_secrets(text, LARGEST_JSON).split("\n"))


def json_tokens(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the pieces of indented JSON, each with its kind."""
    rest = ""
    for match in TOKEN.finditer(json_text(value)):
        kind = match.lastgroup or "other"
        if kind == "other":
            rest += match[0]
            continue
        if rest:
            yield "", rest
            rest = ""
        yield kind, match[0]
    yield "", rest


def _dumped(value: Any, indent: int | None) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, indent=indent, default=str)
    except (ValueError, RecursionError):
        return "(cannot be shown)"
