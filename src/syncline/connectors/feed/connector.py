"""The entries of a feed (RSS, Atom or JSON Feed) and their edits."""

import hashlib
import re
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urljoin

from syncline.connectors.feed.documents import Entry, read_entries
from syncline.errors import Permanent
from syncline.http import Validators
from syncline.model import Connection, Signal, SyncResult
from syncline.offload import in_thread_if_large
from syncline.sdk.connector import Connector

MAX_BYTES = 16_000_000
ACCEPT = (
    "application/feed+json, application/atom+xml, application/rss+xml, application/xml, */*;q=0.8"
)
CONFIG_SCHEMA = {
    "type": "object",
    "required": ["url"],
    "properties": {
        "url": {"type": "string", "title": "URL", "pattern": "^[Hh][Tt][Tt][Pp][Ss]?://"},
        "page_size": {
            "type": "integer",
            "title": "Page size",
            "minimum": 1,
            "maximum": 5000,
            "default": 200,
        },
    },
}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Feed(Connector):
    """Syncs one feed, in the order in which it lists its entries.

    Config: `url`; `page_size` (default 200). An entry's key has its id and a digest of its content,
    so an edited entry comes again. The cursor has the validators that make the next response a
    304, and `version`, a digest of all entries: while it stays the same, nothing is new.
    `position` is how much of a version was read when a run ended early.
    """

    provider = "feed"
    title = "Feed (RSS, Atom, JSON Feed)"
    auth = ("none", "token", "basic", "oauth2", "oauth2_grant", "headers", "query")
    config_schema = CONFIG_SCHEMA

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes

    async def sync(self, connection: Connection, cursor: Any) -> AsyncIterator[SyncResult]:
        url, page_size = _parse_config(connection.config)
        known = Place.from_json(cursor)
        async with self.http(connection, headers={"accept": ACCEPT}) as http:
            answer = await http.get(url, validators=known.validators, max_bytes=self._max_bytes)
        if answer.status_code == 304:
            yield SyncResult(next_cursor=cursor)
            return
        content, kind = answer.content, answer.headers.get("content-type", "")
        entries = await read_entries(content, kind, is_known=cursor is not None)
        url = str(answer.url)
        signals, version = await in_thread_if_large(len(content), _translate, entries, url)
        if version == known.version and not known.position:
            signals = []
        position = known.position
        while position + page_size < len(signals):
            yield SyncResult(
                signals[position : (position := position + page_size)],
                Place(known.version if known.position else version, position).to_json(),
                has_more=True,
            )
        # Changes during an interrupted read show only if everything is read again.
        is_whole = not known.position or known.version == version
        last = Place(version, 0, Validators.of(answer)) if is_whole else Place()
        yield SyncResult(signals[position:], last.to_json())


@dataclass(frozen=True, slots=True)
class Place:
    """The cursor."""

    version: str | None = None
    position: int = 0
    validators: Validators = field(default_factory=Validators)

    @classmethod
    def from_json(cls, cursor: Any) -> "Place":
        if cursor is None:
            return cls()
        fields: dict[str, Any] = cursor if isinstance(cursor, dict) else {"version": 0}
        version, position = fields.get("version"), fields.get("position", 0)
        if not isinstance(version, str | None) or type(position) is not int or position < 0:
            raise Permanent('cursor: expected {"version": a text, "position": a number}')
        return cls(version, position, Validators.from_json(cursor))

    def to_json(self) -> dict[str, Any]:
        named = {"version": self.version, "position": self.position or None}
        kept = {name: value for name, value in named.items() if value is not None}
        return kept | self.validators.to_json()


def _translate(entries: list[Entry], url: str) -> tuple[list[Signal], str]:
    """Return the entries as signals, and the digest of all of them."""
    signals = [_signal(entry, url) for entry in entries]
    return signals, _digest(signal.dedupe_key or "" for signal in signals)


def _signal(entry: Entry, url: str) -> Signal:
    said = (entry.title, entry.link, entry.summary, entry.content, repr(entry.enclosures))
    name = entry.id or entry.link or f"{entry.title}:{entry.published_at}"
    name = name if len(name.encode()) <= 500 else _digest([name])
    is_edited = (
        bool(entry.published_at and entry.updated_at) and entry.updated_at != entry.published_at
    )
    payload = {
        "id": entry.id or None,
        "title": entry.title,
        "link": _joined(url, entry.link) if entry.link else None,
        "author": entry.author or None,
        "summary": entry.summary,
        "content": entry.content,
        "tags": entry.tags,
        "enclosures": [part | {"url": _joined(url, part["url"])} for part in entry.enclosures],
        "published_at": entry.published_at and entry.published_at.isoformat(),
        "updated_at": entry.updated_at and entry.updated_at.isoformat(),
        "feed": entry.feed_title,
    }
    return Signal(
        "entry_updated" if is_edited else "entry_published",
        (entry.updated_at if is_edited else entry.published_at)
        or entry.updated_at
        or entry.feed_at
        or EPOCH,
        payload,
        dedupe_key=f"{name}#{_digest(said)[:16]}",
    )


def _digest(texts: Iterable[str]) -> str:
    # Lengths keep ("ab", "c") and ("a", "bc") apart.
    whole = "".join(f"{len(text)}:{text}" for text in texts)
    return hashlib.sha256(whole.encode()).hexdigest()[:32]


def _joined(url: str, link: str) -> str:
    try:
        return urljoin(url, link)
    except ValueError:  # not a URL
        return link


def _parse_config(config: Any) -> tuple[str, int]:
    url, page_size = config.get("url"), config.get("page_size", 200)
    if not isinstance(url, str) or not re.match("https?://", url, re.IGNORECASE):
        raise Permanent("config.url: expected the http:// or https:// URL of a feed")
    if type(page_size) is not int or not 1 <= page_size <= 5_000:
        raise Permanent("config.page_size: expected an integer from 1 to 5000")
    return url, page_size
