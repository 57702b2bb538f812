"""Parse RSS, Atom and JSON Feed into one form."""

import io
import re
from calendar import timegm
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from syncline.children.parsers import PARSERS, ParserFailed
from syncline.errors import Permanent, Transient
from syncline.json_bounds import JsonBounds, parse_json
from syncline.offload import in_thread_if_large
from syncline.redaction import mask_secrets

UNSTORABLE = re.compile("[\0\ud800-\udfff]")
SHORT, LONG, LONGEST = 1_000, 20_000, 100_000  # characters: titles and links, summaries, contents
PARSE_FEED = f"{__name__}:parse_feed"
MAX_ENTRIES = 20_000
INSTANTS = {"published_at", "updated_at", "feed_at"}
MAX_PARTS = 50  # tags and enclosures of one entry


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry, in one form for all kinds of feeds."""

    id: str = ""
    title: str = ""
    link: str = ""
    author: str = ""
    summary: str = ""
    content: str = ""
    tags: list[str] = field(default_factory=list)
    enclosures: list[dict[str, str]] = field(default_factory=list)
    published_at: datetime | None = None
    updated_at: datetime | None = None
    feed_title: str = ""
    feed_at: datetime | None = None


async def read_entries(content: bytes, content_type: str, *, is_known: bool) -> list[Entry]:
    """Return the entries of a feed, or raise `Permanent` (wrong URL) or `Transient`."""
    try:
        # The parser's patterns are quadratic, so it runs in a process that can be stopped.
        found = await PARSERS.parse(PARSE_FEED, content, {"content_type": content_type})
        return await in_thread_if_large(len(content), _restored, found)
    except ParserFailed as error:
        if error.kind == "NotAFeed":
            reason = f"config.url: the document there is not a feed ({error.message})"
        else:  # a hostile document may make the parser raise anything
            reason = f"config.url: the feed cannot be parsed: {mask_secrets(str(error), 300)}"
    # A known feed may show a maintenance page; a new one has a wrong URL.
    raise Transient(reason) if is_known else Permanent(reason)


class NotAFeed(ValueError):
    """The document is not a feed."""


def parse_feed(content: bytes, content_type: str) -> list[dict[str, Any]]:
    """Return the entries of a feed as JSON; it runs in a parser process."""
    if content.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{":
        entries = _json_entries(parse_json(content, JsonBounds()))
    else:
        entries = _xml_entries(content, content_type)
    return [_plain(entry) for entry in entries[:MAX_ENTRIES]]


def _plain(entry: Entry) -> dict[str, Any]:
    """Return the non-empty fields of an entry, as JSON."""
    named = ((name, getattr(entry, name)) for name in Entry.__slots__)
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in named
        if value
    }


def _restored(found: list[dict[str, Any]]) -> list[Entry]:
    for entry in found:
        for name in INSTANTS.intersection(entry):
            entry[name] = datetime.fromisoformat(entry[name])
    return [Entry(**entry) for entry in found]


def _xml_entries(content: bytes, content_type: str) -> list[Entry]:
    # Without the URL: ids would be resolved as relative URLs and change when a feed moves.
    import feedparser  # only in a parser process

    headers = {"content-type": content_type} if content_type else {}
    # As a stream, because plain bytes could be taken for a file name.
    parsed = feedparser.parse(io.BytesIO(content), response_headers=headers)
    if not parsed.get("version"):
        raise NotAFeed(_text(str(parsed.get("bozo_exception", "no RSS, no Atom")), 200))
    feed = parsed.feed
    about = {
        "feed_title": _text(feed.get("title"), SHORT),
        "feed_at": _instant(feed, "updated_parsed", "published_parsed"),
    }
    return [_xml_entry(entry, about) for entry in parsed.entries]


def _xml_entry(entry: dict[str, Any], about: dict[str, Any]) -> Entry:
    parts = [_text(part.get("value"), LONGEST) for part in entry.get("content", [])[:MAX_PARTS]]
    return Entry(
        id=_text(entry.get("id"), LONG),
        title=_text(entry.get("title"), SHORT),
        link=_text(entry.get("link"), SHORT),
        author=_text(entry.get("author"), SHORT),
        summary=_text(entry.get("summary"), LONG),
        content="\n".join(parts)[:LONGEST],
        tags=[_text(tag.get("term"), SHORT) for tag in entry.get("tags", [])[:MAX_PARTS]],
        enclosures=[
            _enclosure(part.get("href"), part.get("type"))
            for part in entry.get("enclosures", [])[:MAX_PARTS]
        ],
        published_at=_instant(entry, "published_parsed", "created_parsed"),
        updated_at=_instant(entry, "updated_parsed"),
        **about,
    )


def _json_entries(document: Any) -> list[Entry]:
    version = document.get("version")
    if not isinstance(version, str) or "jsonfeed.org/version/" not in version:
        raise NotAFeed("JSON without the version of a JSON Feed")
    title = _text(document.get("title"), SHORT)
    return [_json_entry(item, title) for item in document.get("items") or []]


def _json_entry(item: dict[str, Any], feed_title: str) -> Entry:
    authors = [author.get("name") for author in item.get("authors") or [item.get("author") or {}]]
    content = item.get("content_html") or item.get("content_text")
    return Entry(
        id=_text(item.get("id"), LONG),
        title=_text(item.get("title"), SHORT),
        link=_text(item.get("url") or item.get("external_url"), SHORT),
        author=_text(", ".join(name for name in authors if isinstance(name, str)), SHORT),
        summary=_text(item.get("summary"), LONG),
        content=_text(content, LONGEST),
        tags=[_text(tag, SHORT) for tag in (item.get("tags") or [])[:MAX_PARTS]],
        enclosures=[
            _enclosure(part.get("url"), part.get("mime_type"))
            for part in (item.get("attachments") or [])[:MAX_PARTS]
        ],
        published_at=_json_instant(item.get("date_published")),
        updated_at=_json_instant(item.get("date_modified")),
        feed_title=feed_title,
    )


def _enclosure(url: Any, kind: Any) -> dict[str, str]:
    return {"url": _text(url, SHORT), "type": _text(kind, SHORT)}


def _text(value: Any, longest: int) -> str:
    """Return the value as storable text, or an empty text."""
    if isinstance(value, int | float):  # some ids are numbers
        value = str(value)
    return UNSTORABLE.sub("", value[:longest]).strip() if isinstance(value, str) else ""


def _instant(parsed: dict[str, Any], *names: str) -> datetime | None:
    """Return the first valid time among these fields, in UTC, or None."""
    # feedparser's own `get` maps some names to others.
    found = next(filter(None, (dict.get(parsed, name) for name in names)), None)
    try:
        return datetime.fromtimestamp(timegm(found), UTC) if found else None
    except (ValueError, OverflowError, TypeError, OSError):
        return None


def _json_instant(value: Any) -> datetime | None:
    try:
        instant = datetime.fromisoformat(value)
        return (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, TypeError, OverflowError):
        return None
