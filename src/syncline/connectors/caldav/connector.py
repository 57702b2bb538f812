"""A calendar over CalDAV: what changed and what was deleted since a sync token."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from xml.sax.saxutils import escape

from pydantic import Field

from syncline.children.parsers import PARSERS, ParserFailed
from syncline.clock import host_time
from syncline.connectors.caldav import documents
from syncline.connectors.config import Configuration, read_configuration
from syncline.connectors.timestamps import read_instant
from syncline.errors import Permanent, Transient
from syncline.http import HttpClient, Response
from syncline.model import Connection, Signal, SyncResult
from syncline.offload import in_thread_if_large
from syncline.redaction import mask_secrets
from syncline.sdk.connector import Connector

NAMESPACES = 'xmlns="DAV:" xmlns:c="urn:ietf:params:xml:ns:caldav"'
CHANGES = (
    f"<sync-collection {NAMESPACES}><sync-token>{{token}}</sync-token>"
    "<sync-level>1</sync-level><prop><getetag/></prop></sync-collection>"
)
OBJECTS = (
    f"<c:calendar-multiget {NAMESPACES}><prop><getetag/><c:calendar-data/></prop>"
    "{hrefs}</c:calendar-multiget>"
)
REFUSED = {403, 409, 410}  # the usual statuses for an expired sync token
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Calendar(Configuration):
    """Which calendar to read."""

    url: str = Field(pattern="^https?://")
    page_size: int = Field(default=50, ge=1, le=1000)


class CalDav(Connector):
    """Syncs the objects of one calendar.

    The cursor has the `token` of the last report that was read to the end. While a report is being
    read, `until` is its own token and `after` the last URL that was read. Later changes come with
    the report after `until`.
    """

    provider = "caldav"
    title = "CalDAV calendar"
    auth = ("none", "token", "basic", "oauth2", "oauth2_grant", "headers", "query")
    config_schema = Calendar

    async def sync(self, connection: Connection, cursor: Any) -> AsyncIterator[SyncResult]:
        config = read_configuration(Calendar, connection.config)
        place = Place.from_json(cursor)
        async with self.http(connection, base_url=config.url) as http:
            report = await _report(http, place.token)
            if report is None:
                place = Place(lost=place.token)
                yield SyncResult([_reset(place)], place.to_json(), has_more=True)
                report = await _report(http, "")
                if report is None:
                    raise Permanent("config.url: the server refuses to report any changes")
            until = place.until or report.token
            hrefs = [href for href in sorted(report.changes) if href > place.after]
            while hrefs:
                page, hrefs = hrefs[: config.page_size], hrefs[config.page_size :]
                signals = await _signals(http, page, report.changes, place)
                if hrefs:
                    yield SyncResult(
                        signals, Place(place.token, page[-1], until).to_json(), has_more=True
                    )
                else:
                    yield SyncResult(
                        signals, Place(until).to_json(), report.is_cut and until != place.token
                    )
                    return
            yield SyncResult(next_cursor=Place(until).to_json())


@dataclass(frozen=True, slots=True)
class Place:
    """The cursor."""

    token: str = ""
    after: str = ""
    until: str = ""
    lost: str = ""  # an expired token, after which everything is read again

    @classmethod
    def from_json(cls, cursor: Any) -> "Place":
        fields = {} if cursor is None else cursor
        if not isinstance(fields, dict) or not all(isinstance(v, str) for v in fields.values()):
            raise Permanent('cursor: expected {"token": a text}')
        return cls(*(fields.get(name, "") for name in ("token", "after", "until", "lost")))

    def to_json(self) -> dict[str, str]:
        named = {"token": self.token, "after": self.after, "until": self.until, "lost": self.lost}
        return {name: text for name, text in named.items() if text}


@dataclass(frozen=True, slots=True)
class Report:
    """A server's report of changes: the version at each URL, or None if it was deleted."""

    token: str
    changes: Mapping[str, str | None] = field(default_factory=dict)
    is_cut: bool = False  # the server has more changes


async def _report(http: HttpClient, token: str) -> Report | None:
    """Return the changes since a token, or None if the token expired."""
    answer = await _ask(http, CHANGES.format(token=escape(token)), accept=REFUSED if token else ())
    if answer.status_code in REFUSED:
        if b"valid-sync-token" not in answer.content:
            raise Permanent(f"the server refused the calendar's report with {answer.status_code}")
        return None
    report = await _parse("parse_report", answer, path=answer.url.path)
    if not report["token"]:
        raise Permanent(
            "config.url: the server sent no sync token; check that the URL is a calendar"
        )
    return Report(**report)


async def _signals(
    http: HttpClient, hrefs: list[str], changes: Mapping[str, str | None], place: Place
) -> list[Signal]:
    """Return the signals for some URLs; an object deleted meanwhile counts as deleted."""
    present = [href for href in hrefs if changes[href] is not None]
    found: dict[str, Signal] = {}
    if present:
        listed = "".join(f"<href>{escape(href)}</href>" for href in present)
        answer = await _ask(http, OBJECTS.format(hrefs=listed))
        objects = await _parse("parse_objects", answer)
        changed = await in_thread_if_large(len(answer.content), _all_changed, objects)
        found = {one.payload["href"]: one for one in changed}
    return [found.get(href) or _deleted(href, place) for href in hrefs]


async def _ask(http: HttpClient, body: str, accept: Any = ()) -> Response:
    headers = {"content-type": "application/xml; charset=utf-8", "depth": "0"}
    return await http.request("REPORT", content=body, headers=headers, accept=accept)


async def _parse(function: str, answer: Response, **arguments: str) -> Any:
    """Parse a document in a process that can be stopped."""
    name = f"{documents.__name__}:{function}"
    try:
        return await PARSERS.parse(name, answer.content, arguments)
    except ParserFailed as error:
        if error.kind == "NotAnAnswer":
            raise Transient(f"the calendar server answered with {error.message}") from None
        if error.kind == "NotAnObject":
            raise Permanent(error.message) from None
        if error.kind == "ModuleNotFoundError":
            raise Permanent("caldav needs an extra: pip install 'syncline[caldav]'") from None
        reason = mask_secrets(str(error), 300)
        raise Transient(f"the calendar's answer cannot be parsed: {reason}") from None


def _all_changed(objects: list[dict[str, Any]]) -> list[Signal]:
    return [_changed(**one) for one in objects]


def _changed(href: str, etag: str, kind: str, objects: list[dict[str, str]], ics: str) -> Signal:
    times = [one[name] for one in objects for name in ("last_modified", "dtstamp") if name in one]
    occurred_at = max(filter(None, map(read_instant, times)), default=EPOCH)
    return Signal(
        f"{kind}_changed",
        occurred_at,
        {"href": href, "etag": etag, "objects": objects, "ics": ics},
        dedupe_key=f"{href}@{etag}",
    )


def _deleted(href: str, place: Place) -> Signal:
    # The server does not say when. The token makes the key the same on every read.
    key = f"{href}@deleted:{place.token or place.lost}"
    return Signal("object_deleted", host_time(), {"href": href}, dedupe_key=key)


def _reset(place: Place) -> Signal:
    key = f"reset:{place.lost}"
    return Signal("calendar_reset", host_time(), {"token": place.lost}, dedupe_key=key)
