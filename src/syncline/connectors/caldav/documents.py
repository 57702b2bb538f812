"""Parse the documents of a calendar server; both functions run in a parser process.

The XML comes from the server, the calendar objects from anyone who may write to the calendar.
"""

from collections.abc import Iterator
from datetime import date
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

DAV, CALDAV = "{DAV:}", "{urn:ietf:params:xml:ns:caldav}"
COMPONENTS = {"VEVENT": "event", "VTODO": "todo", "VJOURNAL": "journal"}
TEXTS = ("UID", "SUMMARY", "DESCRIPTION", "LOCATION", "STATUS", "ORGANIZER")
TIMES = ("DTSTART", "DTEND", "DUE", "RECURRENCE-ID", "LAST-MODIFIED", "DTSTAMP", "CREATED")


class NotAnAnswer(ValueError):
    """The document is not the expected one; a retry may help."""


class NotAnObject(ValueError):
    """A calendar object cannot be parsed."""


def parse_report(content: bytes, path: str) -> dict[str, Any]:
    """Return a report: its token, the version at each URL (None: deleted), whether it is cut.

    `path` is the calendar's own, for which a server reports that it has more changes.
    """
    root = _parse(content)
    own = unquote(path).rstrip("/")
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
    in_order = dict(sorted(changes.items()))  # sorted here, off the event loop
    return {"token": root.findtext(f"{DAV}sync-token"), "changes": in_order, "is_cut": is_cut}


def parse_objects(content: bytes) -> list[dict[str, Any]]:
    """Return the calendar objects of a response, each with its URL and version."""
    found = []
    for href, response in _responses(_parse(content)):
        text = response.findtext(f".//{CALDAV}calendar-data")
        if text is not None:
            kind, objects = _read_objects(href, text)
            etag = response.findtext(f".//{DAV}getetag") or ""
            found.append(
                {"href": href, "etag": etag, "kind": kind, "objects": objects, "ics": text}
            )
    return found


def _parse(content: bytes) -> ElementTree.Element:
    if b"<!DOCTYPE" in content or b"<!ENTITY" in content:
        raise NotAnAnswer("a document with entities, or an HTML page")
    try:
        root = ElementTree.fromstring(content)  # noqa: S314  (no entities: see above)
    except ElementTree.ParseError:
        raise NotAnAnswer("something that is not XML") from None
    if root.tag != f"{DAV}multistatus":
        raise NotAnAnswer("something other than a multistatus")
    return root


def _responses(root: ElementTree.Element) -> Iterator[tuple[str, ElementTree.Element]]:
    for response in root.iter(f"{DAV}response"):
        href = response.findtext(f"{DAV}href")
        if href:
            yield href.strip(), response


def _read_objects(href: str, text: str) -> tuple[str, list[dict[str, str]]]:
    """Return the kind of a calendar object, and its components: one, plus one per exception."""
    import icalendar  # only with the extra `caldav`

    try:
        whole = icalendar.Calendar.from_ical(text)
    except ValueError as error:
        raise NotAnObject(f"{href} is not a calendar object: {error}"[:1000]) from None
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
