"""A calendar over CalDAV: what changed and what was deleted since a sync token."""

from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from httpx2 import Response
from pydantic import Field

from syncline.clock import host_time
from syncline.connectors.configuration import Configuration, read_configuration
from syncline.connectors.instants import read_instant
from syncline.errors import Permanent, Transient
from syncline.http import HttpClient
from syncline.model import Connection, Signal, SyncResult
from syncline.sdk.connector import Connector

DAV, CALDAV = "{DAV:}", "{urn:ietf:params:xml:ns:caldav}"
NAMESPACES = 'xmlns="DAV:" xmlns:c="urn:ietf:params:xml:ns:caldav"'
CHANGES = (
    f"<sync-collection {NAMESPACES}><sync-token>{{token}}</sync-token>"
    "<sync-level>1</sync-level><prop><getetag/></prop></sync-collection>"
)
OBJECTS = (
    f"<c:calendar-multiget {NAMESPACES}><prop><getetag/><c:calendar-data/></prop>"
    "{hrefs}</c:calendar-multiget>"
)
REFUSED = {403, 409, 410}  # how servers answer to a sync token that they no longer know
COMPONENTS = {"VEVENT": "event", "VTODO": "todo", "VJOURNAL": "journal"}
TEXTS = ("UID", "SUMMARY", "DESCRIPTION", "LOCATION", "STATUS", "ORGANIZER")
TIMES = ("DTSTART", "DTEND", "DUE", "RECURRENCE-ID", "LAST-MODIFIED", "DTSTAMP", "CREATED")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Calendar(Configuration):
    """Which calendar to read."""

    url: str = Field(pattern="^https?://")
    page_size: int = Field(default=50, ge=1, le=1000)


class CalDav(Connector):
    """Syncs the objects of one calendar.

    The cursor holds the `token` of the last report that was read to its end. While one is being
    read, `until` is the token that it led to, and `after` the last address that was read: what
    changes meanwhile comes with the report after `until`.
    """

    provider = "caldav"

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
    """Where a connection left off."""

    token: str = ""
    after: str = ""
    until: str = ""
    lost: str = ""  # a token that the server forgot, so that all is read anew

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
    """What a server says of changes: the version of each address, or None for a deleted one."""

    token: str
    changes: Mapping[str, str | None] = field(default_factory=dict)
    is_cut: bool = False  # the server had more than it wanted to say at once


async def _report(http: HttpClient, token: str) -> Report | None:
    """Return the changes since a token, or None where the server no longer knows it."""
    answer = await _ask(http, CHANGES.format(token=escape(token)), accept=REFUSED if token else ())
    if answer.status_code in REFUSED:
        if b"valid-sync-token" not in answer.content:
            raise Permanent(f"the calendar's report is refused with {answer.status_code}")
        return None
    root = _parse(answer)
    found = root.findtext(f"{DAV}sync-token")
    if not found:
        raise Permanent("config.url: the server answers no sync token; is it a calendar?")
    own = unquote(answer.url.path).rstrip("/")
    changes: dict[str, str | None] = {}
    is_cut = False
    for href, response in _responses(root):
        status = response.findtext(f"{DAV}status") or ""
        if unquote(href).rstrip("/") == own:
            is_cut = is_cut or " 507" in status
        elif " 404" in status:
            changes[href] = None
        else:
            changes[href] = response.findtext(f".//{DAV}getetag") or ""
    return Report(found, changes, is_cut)


async def _signals(
    http: HttpClient, hrefs: list[str], changes: Mapping[str, str | None], place: Place
) -> list[Signal]:
    """Return what happened at some addresses; one that was deleted meanwhile is told as such."""
    present = [href for href in hrefs if changes[href] is not None]
    found: dict[str, Signal] = {}
    if present:
        listed = "".join(f"<href>{escape(href)}</href>" for href in present)
        for href, response in _responses(_parse(await _ask(http, OBJECTS.format(hrefs=listed)))):
            text = response.findtext(f".//{CALDAV}calendar-data")
            if text is not None:
                found[href] = _changed(href, response.findtext(f".//{DAV}getetag") or "", text)
    return [found.get(href) or _deleted(href, place) for href in hrefs]


async def _ask(http: HttpClient, body: str, accept: Any = ()) -> Response:
    headers = {"content-type": "application/xml; charset=utf-8", "depth": "0"}
    return await http.request("REPORT", content=body, headers=headers, accept=accept)


def _parse(answer: Response) -> ElementTree.Element:
    if b"<!DOCTYPE" in answer.content or b"<!ENTITY" in answer.content:
        raise Transient("the calendar answered a document with entities, or a page for people")
    try:
        root = ElementTree.fromstring(answer.content)  # noqa: S314  (no entities: see above)
    except ElementTree.ParseError:
        raise Transient("the calendar answered what is no XML") from None
    if root.tag != f"{DAV}multistatus":
        raise Transient("the calendar answered something else than a multistatus")
    return root


def _responses(root: ElementTree.Element) -> Iterator[tuple[str, ElementTree.Element]]:
    for response in root.iter(f"{DAV}response"):
        href = response.findtext(f"{DAV}href")
        if href:
            yield href.strip(), response


def _changed(href: str, etag: str, text: str) -> Signal:
    kind, objects = _read_objects(href, text)
    times = [one[name] for one in objects for name in ("last_modified", "dtstamp") if name in one]
    occurred_at = max(filter(None, map(read_instant, times)), default=EPOCH)
    return Signal(
        f"{kind}_changed",
        occurred_at,
        {"href": href, "etag": etag, "objects": objects, "ics": text},
        dedupe_key=f"{href}@{etag}",
    )


def _read_objects(href: str, text: str) -> tuple[str, list[dict[str, str]]]:
    """Return the kind of a calendar object, and its components: one, or one an exception."""
    try:
        import icalendar  # an extra: the others need none of it
    except ImportError:
        raise Permanent("caldav needs an extra: pip install 'syncline[caldav]'") from None
    try:
        whole = icalendar.Calendar.from_ical(text)
    except ValueError as error:
        raise Permanent(f"{href} is no calendar object: {error}") from None
    parts = [part for part in whole.subcomponents if part.name in COMPONENTS]
    kind = COMPONENTS[str(parts[0].name)] if parts else "object"
    return kind, [_read_component(part) for part in parts]


def _read_component(part: Any) -> dict[str, str]:
    fields = {name.lower(): str(part[name]) for name in TEXTS if name in part}
    for name in TIMES:
        value = getattr(part.get(name), "dt", None)
        if isinstance(value, date):  # a datetime is one
            fields[name.lower().replace("-", "_")] = value.isoformat()
    if "RRULE" in part:
        fields["rrule"] = part["RRULE"].to_ical().decode()
    return fields


def _deleted(href: str, place: Place) -> Signal:
    # The server does not say when; the token before it is the same whenever this is read again.
    key = f"{href}@deleted:{place.token or place.lost}"
    return Signal("object_deleted", host_time(), {"href": href}, dedupe_key=key)


def _reset(place: Place) -> Signal:
    key = f"reset:{place.lost}"
    return Signal("calendar_reset", host_time(), {"token": place.lost}, dedupe_key=key)
