"""Prints results: tables for people, JSON for programs."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from syncline.text import one_line, rfc3339, shortened

if TYPE_CHECKING:
    from syncline.services.pagination import Listing

UNLIMITED = 100_000  # columns: output to a file or a pipe is never cut
LONGEST_CELL, LONGEST_FIELD = 100, 4000
KEPT_WHOLE, FOLDED_TO, GAP = 36, 24, 3  # an id has 36 characters
COLOURS = {
    "active": "green",
    "alive": "green",
    "succeeded": "green",
    "completed": "green",
    "ok": "green",
    "running": "cyan",
    "queued": "blue",
    "paused": "yellow",
    "stopping": "yellow",
    "backoff": "yellow",
    "cancelled": "bright_black",
    "revoked": "bright_black",
    "needs_reauth": "red",
    "error": "red",
    "failed": "red",
    "broken": "red",
    "dead": "red",
    "down": "red",
    "failing": "red",
    "rate_limited": "yellow",
    "bad": "red",
    "warning": "yellow",
    "expiring": "yellow",
    "expired": "bright_black",
    "not judged": "yellow",
}


def print_json(value: Any) -> None:
    """Print the value as JSON, with every time as RFC 3339 in UTC."""
    print(json.dumps(value, default=plain, indent=2))


def plain_line(value: Any) -> str:
    """Return the value as one line of JSON."""
    return json.dumps(value, default=plain, ensure_ascii=False)


def record(thing: Any) -> dict[str, Any]:
    """Return a connection, job or signal as a JSON object, without its credentials."""
    fields = asdict(thing)
    fields.pop("credentials", None)
    return fields


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], *, dispensable: Sequence[str] = ()
) -> None:
    """Print a table; a narrow terminal drops the dispensable columns, in that order."""
    console = _console()
    cells: dict[str, list[Text]] = {head: [] for head in columns}
    for row in rows:
        for head, value in zip(columns, row, strict=True):
            cells[head].append(cell(value))
    for head in dispensable:
        if sum(map(_least_width, cells, cells.values())) > console.width:
            del cells[head]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for head, texts in cells.items():
        table.add_column(head, no_wrap=_natural_width(head, texts) <= KEPT_WHOLE, overflow="fold")
    for line in zip(*cells.values(), strict=True):
        table.add_row(*line)
    _print(console, table)


def print_fields(fields: Mapping[str, Any]) -> None:
    """Print one thing, one field per line."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in fields.items():
        table.add_row(cell(name), cell(value, longest=LONGEST_FIELD))
    _print(_console(), table)


def cell(value: Any, *, longest: int = LONGEST_CELL) -> Text:
    """Return the value as text, with markup and terminal control characters made harmless."""
    if value is None:
        return Text("-", style="bright_black")
    if isinstance(value, datetime):
        return Text(value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ"))
    if isinstance(value, dict | list):
        value = json.dumps(value, ensure_ascii=False, default=plain)
    text = shortened(one_line(str(value)), longest)
    return Text(text, style=COLOURS.get(text, ""))


def say(sentence: str) -> None:
    """Print a sentence on stderr, after the results printed so far."""
    flush_results()
    print(sentence, file=sys.stderr, flush=True)


def flush_results() -> None:
    """Flush stdout: in a pipe it is buffered, and stderr would overtake it."""
    with suppress(OSError):  # the reader has gone
        sys.stdout.flush()


def hint_next(found: "Listing[Any]") -> None:
    """Say on stderr how to list the rest, if there is more."""
    if found.next_page is not None:
        say(f"There is more: --after {found.next_page}")


def plain(value: Any) -> Any:
    """Return times, ids and durations (in seconds) as JSON values."""
    if isinstance(value, datetime):
        return rfc3339(value)
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def _console() -> Console:
    """Return a console on the current stdout."""
    width = None if sys.stdout.isatty() else UNLIMITED
    return Console(file=sys.stdout, width=width, highlight=False)


def _print(console: Console, table: Table) -> None:
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        print(line.rstrip())


def _least_width(head: str, texts: Sequence[Text]) -> int:
    """Return the least width of a column with its gap; long cells may be folded."""
    natural = _natural_width(head, texts)
    return (natural if natural <= KEPT_WHOLE else FOLDED_TO) + GAP


def _natural_width(head: str, texts: Sequence[Text]) -> int:
    return max(len(head), *(text.cell_len for text in texts), 0)
