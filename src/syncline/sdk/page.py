"""Check what a connector returned, and turn it into the columns that the store takes."""

import json
import re
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import Any, TypeGuard

from syncline.errors import ContractError
from syncline.model import Signal, SyncResult
from syncline.sdk.json_text import encode_json, same_json

MAX_KIND = 255
MAX_DEDUPE_KEY_BYTES = 1024  # an index row has at most 2704 bytes
# The database driver writes the very first and last instants as infinity.
EARLIEST, LATEST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
UNSTORABLE = re.compile("[\0\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class PageLimits:
    payload_bytes: int
    cursor_bytes: int
    page_signals: int
    page_bytes: int


@dataclass(slots=True)
class Page:
    """A checked page: signals as columns, the cursor as JSON text (None if there was none)."""

    kinds: list[str] = field(default_factory=list)
    occurred_at: list[datetime] = field(default_factory=list)
    payloads: list[str] = field(default_factory=list)
    dedupe_keys: list[str | None] = field(default_factory=list)
    next_cursor: str | None = None
    has_more: bool = False
    payload_bytes: int = 0

    @property
    def signal_count(self) -> int:
        return len(self.kinds)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to store. Without a cursor there is no further page either."""
        return not self.kinds and self.next_cursor is None


NOTHING_NEW = Page()  # what most runs return


def read_page(result: Any, *, cursor: Any, limits: PageLimits) -> Page:
    """Return the checked page, or raise a `ContractError` that names the field and the reason."""
    reader = PageReader(result, cursor=cursor, limits=limits)
    while not reader.read_some(limits.page_bytes):
        pass
    return reader.page


class PageReader:
    """Checks a page in parts, so that a large page does not block the event loop."""

    def __init__(self, result: Any, *, cursor: Any, limits: PageLimits) -> None:
        """Check everything but the signals."""
        if not isinstance(result, SyncResult):
            if isinstance(result, Coroutine):
                result.close()  # the error says it; avoid the "never awaited" warning
            raise ContractError(f"sync() returned {type(result).__name__}, not a SyncResult")
        if not isinstance(result.has_more, bool):
            raise ContractError(f"has_more is {type(result.has_more).__name__}, not a bool")
        self._limits = limits
        self._seen: set[str] = set()
        self._signals: Iterator[tuple[int, Any]] = enumerate(())
        if is_nothing_new(result):
            self.page = NOTHING_NEW
            return
        self.page = Page(has_more=result.has_more)
        _read_cursor(result, cursor, self.page, limits)
        if result.signals or not isinstance(result.signals, list | tuple):
            self._signals = enumerate(_iterate(result.signals, limits.page_signals + 1))

    def read_some(self, size_bytes: int) -> bool:
        """Check signals until their payloads reach this size; return whether all are checked."""
        page, limits, seen = self.page, self._limits, self._seen
        size, until = page.payload_bytes, page.payload_bytes + size_bytes
        kind: str | None = None  # that was checked last: most pages have one
        for index, signal in self._signals:
            if index == limits.page_signals:
                raise ContractError(f"more than {limits.page_signals} signals in one page")
            if not isinstance(signal, Signal):
                raise ContractError(f"signals[{index}] is {type(signal).__name__}, not a Signal")
            key = _read_dedupe_key(signal.dedupe_key, index)
            if key is not None:
                if key in seen:
                    continue  # the first signal with a key wins, on a page as between pages
                seen.add(key)
            payload = _read_payload(signal.payload, index, limits)
            size += len(payload) if payload.isascii() else len(payload.encode())
            if size > limits.page_bytes:
                raise ContractError(
                    f"signals[{index}]: the page is over the limit of {limits.page_bytes} bytes"
                )
            kind = _read_kind(signal.kind, index, kind)
            page.kinds.append(kind)
            page.occurred_at.append(_read_time(signal.occurred_at, index))
            page.payloads.append(payload)
            page.dedupe_keys.append(key)
            if size >= until:
                page.payload_bytes = size
                return False
        page.payload_bytes = size
        return True


def is_nothing_new(result: Any) -> bool:
    """Return whether this is the empty page that most runs return."""
    if not isinstance(result, SyncResult):
        return False
    signals: Any = result.signals
    is_empty = isinstance(signals, list | tuple) and not signals
    return is_empty and result.next_cursor is None and result.has_more is False


def _read_cursor(result: SyncResult, cursor: Any, page: Page, limits: PageLimits) -> None:
    if result.next_cursor is not None:
        page.next_cursor = encode_json(
            result.next_cursor, limit=limits.cursor_bytes, where="next_cursor"
        )
    if page.has_more and page.next_cursor is None:
        raise ContractError("has_more needs a next_cursor, from which the next run continues")
    if page.next_cursor and page.has_more and same_json(json.loads(page.next_cursor), cursor):
        raise ContractError("has_more needs a new cursor; with the same one it never ends")


def _iterate(signals: Any, most: int) -> Iterator[Any]:
    if isinstance(signals, str | bytes | Mapping) or not isinstance(signals, Iterable):
        raise ContractError(f"signals is {type(signals).__name__}, not a list of Signal")
    return islice(signals, most)


def _is_plain(text: Any, most: int) -> TypeGuard[str]:
    """Return whether this is short ASCII text without a NUL: nearly all keys and kinds are."""
    return type(text) is str and 0 < len(text) <= most and text.isascii() and "\0" not in text


def _read_kind(kind: Any, index: int, checked: str | None) -> str:
    if checked is not None and kind is checked:
        return checked
    if _is_plain(kind, MAX_KIND):
        return kind
    if not isinstance(kind, str) or not 0 < len(kind) <= MAX_KIND or UNSTORABLE.search(kind):
        raise ContractError(f"signals[{index}].kind must be text of 1 to {MAX_KIND} characters")
    return kind


def _read_time(instant: Any, index: int) -> datetime:
    if type(instant) is datetime and instant.tzinfo is UTC and 1 < instant.year < 9999:
        return instant  # nearly all of them
    where = f"signals[{index}]"
    if not isinstance(instant, datetime):
        raise ContractError(f"{where}.occurred_at is {type(instant).__name__}, not a datetime")
    try:
        # Only an aware time has an offset, and only the years 1 to 9999 can be converted.
        if instant.utcoffset() is None:
            raise ContractError(f"{where}.occurred_at has no time zone")
        utc: datetime = instant.astimezone(UTC)
    except (OverflowError, ValueError):
        raise ContractError(f"{where}.occurred_at is outside the years 1 to 9999") from None
    if not EARLIEST < utc < LATEST:
        raise ContractError(
            f"{where}.occurred_at is the first or last instant of the years 1 to 9999"
        )
    return utc


def _read_payload(payload: Any, index: int, limits: PageLimits) -> str:
    if type(payload) is not dict and not isinstance(payload, dict):
        if not isinstance(payload, Mapping):
            raise ContractError(
                f"signals[{index}].payload is {type(payload).__name__}, not a JSON object"
            )
        payload = dict(payload)
    try:
        return encode_json(payload, limit=limits.payload_bytes)
    except ContractError as error:
        raise ContractError(error.reason, where=f"signals[{index}].payload") from None


def _read_dedupe_key(key: Any, index: int) -> str | None:
    if key is None or _is_plain(key, MAX_DEDUPE_KEY_BYTES):
        return key
    where = f"signals[{index}]"
    if not isinstance(key, str):
        raise ContractError(f"{where}.dedupe_key is {type(key).__name__}, not a str; use str(…)")
    if not key or UNSTORABLE.search(key):
        raise ContractError(f"{where}.dedupe_key must be non-empty text that Postgres can store")
    if len(key.encode()) > MAX_DEDUPE_KEY_BYTES:
        raise ContractError(f"{where}.dedupe_key is over {MAX_DEDUPE_KEY_BYTES} bytes")
    return key
