"""Records of foreign programs as signals, gathered into pages that each commit with a cursor."""

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite
from typing import Any

from syncline.clock import monotonic
from syncline.errors import Transient
from syncline.json_bounds import QUICK_NODES, JsonBounds, TooComplex, parse_json
from syncline.model import Signal, SyncResult
from syncline.sdk.page import MAX_KIND

LARGEST_PAGE_BYTES = 8 * 2**20
LONGEST_PAGE_SECONDS = 10.0  # what has come by then is committed, so that a slow source gets on
LONGEST_KEY = 300
LINE_BOUNDS = JsonBounds(nodes=QUICK_NODES)
# What programs stamp on a record anew at each run: times of their own (but not that of a deletion),
# numbers of runs. An edit does not show here.
VOLATILE = re.compile(
    r"_sdc_(?!deleted)\w+_at|_sdc_(sequence|table_version)|_airbyte_((extracted|emitted)_at|raw_id)"
)


class Gathering:
    """A page in the making.

    Its cursor is the last state that came, which speaks for the records before it: they are all in
    this page or in one before. Records after it come again if the run ends, and are dropped then.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._signals: list[Signal] = []
        self._bytes = 0
        self._cursor: Any = None
        self._began = monotonic()

    def add(self, signal: Signal, size_bytes: int) -> None:
        self._signals.append(signal)
        self._bytes += size_bytes

    def keep_state(self, state: Any) -> None:
        self._cursor = state

    @property
    def is_ready(self) -> bool:
        """Whether the page should be committed now."""
        return (
            len(self._signals) >= self._size
            or self._bytes >= LARGEST_PAGE_BYTES
            or (not self.is_empty and monotonic() - self._began >= LONGEST_PAGE_SECONDS)
        )

    @property
    def is_empty(self) -> bool:
        return not self._signals and self._cursor is None

    def take(self) -> SyncResult:
        """Return the page, and begin the next."""
        page = SyncResult(self._signals, next_cursor=self._cursor)
        self._signals, self._bytes, self._cursor = [], 0, None
        self._began = monotonic()
        return page


def dedupe_key(
    stream: str,
    keys: Sequence[str],
    record: Mapping[str, Any],
    version: Any = None,
    ignored: Collection[str] = (),
) -> str:
    """Return a key that is the same for the same content, and another one after an edit.

    `ignored` are the fields in which the program writes something new at each run.
    """
    content = {
        name: value
        for name, value in record.items()
        if name not in ignored and not VOLATILE.fullmatch(name)
    }
    text = json.dumps([stream, content, version], sort_keys=True, default=str)
    digest = hashlib.sha256(text.encode()).hexdigest()[:32]
    named = "/".join([stream, *(str(record.get(key)) for key in keys)])
    return f"{storable(named)[:LONGEST_KEY]}/{digest}"


def kind_of(stream: str, event: str = "") -> str:
    """Return a signal's kind: the stream, and what happened to it where that is no record."""
    ending = f".{event}" if event else ""
    return storable(stream)[: MAX_KIND - len(ending)] + ending


def parse_time(value: Any) -> datetime | None:
    """Return the instant that a text stands for, in UTC where it names no zone."""
    if not isinstance(value, str) or len(value) < len("2025-01-01"):
        return None
    try:
        instant = datetime.fromisoformat(value)
        return instant.astimezone(UTC) if instant.tzinfo else instant.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def parse_line(line: bytes) -> Any:
    """Return the JSON of a line, without what a database cannot hold; None if it is none."""
    try:
        value = parse_json(line, LINE_BOUNDS)
    except TooComplex as error:
        raise Transient(f"a line of the program holds {error}") from None
    except ValueError:
        return None
    is_odd = any(mark in line.lower() for mark in (b"\\u0000", b"\\ud", b"nan", b"infinity"))
    return _storable_value(value) if is_odd else value


def _storable_value(value: Any) -> Any:
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, dict):
        return {storable(key): _storable_value(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_storable_value(inner) for inner in value]
    return value


def storable(text: str) -> str:
    """Return the text with a sign in place of what Postgres cannot hold."""
    return (
        text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    )
