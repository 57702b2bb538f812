"""What a calendar server's documents say; both functions are called in a process of their own.

The XML comes from the server and the calendar objects from whoever may write into the calendar.
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
    """The document is not what was asked for; another time it may be."""


class NotAnObject(ValueError):
    """A calendar object cannot be read."""


def parse_report(content: bytes, path: str) -> dict[str, Any]:
    """Return a report: its token, the version of each address (None: deleted), whether it is cut.

    `path` is the calendar's own, under which a server says that it had more to tell.
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
    in_order = dict(sorted(changes.items()))  # sorted here, it takes the loop no time
    return {"token": root.findtext(f"{DAV}sync-token"), "changes": in_order, "is_cut": is_cut}


def parse_objects(content: bytes) -> list[dict[str, Any]]:
    """Return the calendar objects of an answer, each with its address and its version."""
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
        raise NotAnAnswer("a document with entities, or a page for people")
    try:
        root = ElementTree.fromstring(content)  # noqa: S314  (no entities: see above)
    except ElementTree.ParseError:
        raise NotAnAnswer("what is no XML") from None
    if root.tag != f"{DAV}multistatus":
        raise NotAnAnswer("something else than a multistatus")
    return root


def _responses(root: ElementTree.Element) -> Iterator[tuple[str, ElementTree.Element]]:
    for response in root.iter(f"{DAV}response"):
        href = response.findtext(f"{DAV}href")
        if href:
            yield href.strip(), response


def _read_objects(href: str, text: str) -> tuple[str, list[dict[str, str]]]:
    """Return the kind of a calendar object, and its components: one, or one an exception."""
    import icalendar  # an extra: the others need none of it

    try:
        whole = icalendar.Calendar.from_ical(text)
    except ValueError as error:
        raise NotAnObject(f"{href} is no calendar object: {error}"[:1000]) from None
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
