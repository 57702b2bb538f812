"""Records of third-party programs as signals, collected into pages with a cursor each."""

import hashlib
import json
import re
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite
from typing import Any, Protocol

from syncline.clock import monotonic
from syncline.connectors.foreign.host import Running
from syncline.errors import SyncError, Transient
from syncline.json_bounds import QUICK_NODES, JsonBounds, TooComplex, parse_json
from syncline.model import Signal, SyncResult
from syncline.offload import in_thread_if_large
from syncline.sdk.page import MAX_KIND

MAX_PAGE_BYTES = 8 * 2**20
MAX_PAGE_SECONDS = 10.0  # then the page is stored, so that a slow source makes progress
MAX_KEY = 300
IDLE_SECONDS = 5.0
LINE_BOUNDS = JsonBounds(nodes=QUICK_NODES)
# Fields that programs write anew at each run: their own times (except that of a deletion) and run
# numbers. They do not mean that a record was edited.
VOLATILE = re.compile(
    r"_sdc_(?!deleted)\w+_at|_sdc_(sequence|table_version)|_airbyte_((extracted|emitted)_at|raw_id)"
)


class PageBuffer:
    """Collects signals and the latest state until they are a page.

    The cursor is the last state, which covers all records before it: they are in this page or an
    earlier one. Records after it come again if the run ends, and are dropped as duplicates.
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
        """Whether the page should be stored now."""
        return (
            len(self._signals) >= self._size
            or self._bytes >= MAX_PAGE_BYTES
            or (not self.is_empty and monotonic() - self._began >= MAX_PAGE_SECONDS)
        )

    @property
    def is_empty(self) -> bool:
        return not self._signals and self._cursor is None

    def take(self) -> SyncResult:
        """Return the page and start the next one."""
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
    """Return a key that stays the same until the record's content changes.

    `ignored` are fields that the program writes anew at each run.
    """
    content = {
        name: value
        for name, value in record.items()
        if name not in ignored and not VOLATILE.fullmatch(name)
    }
    text = json.dumps([stream, content, version], sort_keys=True, default=str)
    digest = hashlib.sha256(text.encode()).hexdigest()[:32]
    named = "/".join([stream, *(str(record.get(key)) for key in keys)])
    return f"{storable(named)[:MAX_KEY]}/{digest}"


def kind_of(stream: str, event: str = "") -> str:
    """Return a signal's kind: the stream, and the event if the signal is not a record."""
    ending = f".{event}" if event else ""
    return storable(stream)[: MAX_KIND - len(ending)] + ending


def parse_time(value: Any) -> datetime | None:
    """Return the instant of a text, as UTC if it has no zone."""
    if not isinstance(value, str) or len(value) < len("2025-01-01"):
        return None
    try:
        instant = datetime.fromisoformat(value)
        return instant.astimezone(UTC) if instant.tzinfo else instant.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def parse_line(line: bytes) -> Any:
    """Return the JSON of a line, made storable, or None if the line is not JSON."""
    try:
        value = parse_json(line, LINE_BOUNDS)
    except TooComplex as error:
        raise Transient(f"a line of the program has {error}") from None
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
    """Replace the characters that Postgres cannot store."""
    return (
        text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    )


class Translation(Protocol):
    """Turns a program's lines into signals and states of a page."""

    failure: SyncError | None  # as the program reported it

    def take(self, line: bytes) -> None: ...


async def read_pages(
    program: Running, translation: Translation, page: PageBuffer
) -> AsyncGenerator[SyncResult, None]:
    """Yield pages as the program writes lines, then raise its failure if it failed.

    The last page is yielded even if the program failed in the end.
    """
    while (line := await program.next_line(IDLE_SECONDS)) != b"":
        if line is not None:
            await in_thread_if_large(len(line), translation.take, line)
        if page.is_ready:
            yield page.take()
    failure = await program.failure(translation.failure)
    if not page.is_empty:
        yield page.take()
    if failure is not None:
        raise failure
