"""A small CalDAV server: reports what changed since a token, and hands out objects."""

import base64
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from xml.sax.saxutils import escape

from support.httpserver import Reply, Seen

USER, PASSWORD = "ada", "pa55word-of-ada"
LOGIN = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
PATH = "/cal/ada/work/"
REPORT = re.compile(r"<sync-token>(.*?)</sync-token>")
HREF = re.compile(r"<href>(.*?)</href>")


def event(uid: str, summary: str, *, changed: int = 0) -> str:
    """Return an object with one event, changed some seconds after noon."""
    at = datetime(2024, 5, 1, 12, tzinfo=UTC) + timedelta(seconds=changed)
    lines = [
        "BEGIN:VCALENDAR",
        "VERSION:2.0",
        "PRODID:-//Example//Test//EN",
        "BEGIN:VEVENT",
        f"UID:{uid}",
        "DTSTAMP:20240501T120000Z",
        f"LAST-MODIFIED:{at:%Y%m%dT%H%M%SZ}",
        "DTSTART;VALUE=DATE:20240601",
        "RRULE:FREQ=WEEKLY;COUNT=3",
        f"SUMMARY:{summary}",
        "END:VEVENT",
        "END:VCALENDAR",
        "",
    ]
    return "\r\n".join(lines)


class CalendarDouble:
    """One calendar; each change has a number, which is the token after it."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, str | None]] = []
        self.forgotten = -1  # tokens up to this one
        self.replies: list[Reply] = []

    @property
    def objects(self) -> dict[str, str]:
        latest = dict(self.changes)
        return {href: text for href, text in latest.items() if text is not None}

    def put(self, name: str, summary: str) -> None:
        text = event(name, summary, changed=len(self.changes))
        self.changes.append((f"{PATH}{name}.ics", text))

    def delete(self, name: str) -> None:
        self.changes.append((f"{PATH}{name}.ics", None))

    def __call__(self, seen: Seen) -> Reply:
        if self.replies:
            return self.replies.pop(0)
        if seen.headers.get("authorization") != LOGIN:
            return Reply(401, b"who are you?", {"content-type": "text/plain"})
        body = seen.body.decode()
        if "calendar-multiget" in body:
            return _multistatus("".join(map(self._object, HREF.findall(body))))
        return self._report(REPORT.findall(body)[0])

    def _report(self, token: str) -> Reply:
        number = int(token.rpartition("/")[2] or 0)
        if token and number <= self.forgotten:
            body = b'<error xmlns="DAV:"><valid-sync-token/></error>'
            return Reply(403, body, {"content-type": "application/xml"})
        changed = dict(self.changes[number:])
        if not token:
            changed = {href: text for href, text in changed.items() if text is not None}
        listed = "".join(
            _response(href, self._etag(href)) if text is not None else _gone(href)
            for href, text in changed.items()
        )
        return _multistatus(f"{listed}<sync-token>http://x/{len(self.changes)}</sync-token>")

    def _object(self, href: str) -> str:
        text = self.objects.get(href)
        if text is None:
            return _gone(href)
        return _response(
            href, self._etag(href), f"<C:calendar-data>{escape(text)}</C:calendar-data>"
        )

    def _etag(self, href: str) -> str:
        return str(max(n for n, (changed, _) in enumerate(self.changes) if changed == href))


def _response(href: str, etag: str, more: str = "") -> str:
    prop = f"<prop><getetag>&quot;{etag}&quot;</getetag>{more}</prop>"
    status = "<status>HTTP/1.1 200 OK</status>"
    return f"<response><href>{href}</href><propstat>{prop}{status}</propstat></response>"


def _gone(href: str) -> str:
    return f"<response><href>{href}</href><status>HTTP/1.1 404 Not Found</status></response>"


def _multistatus(inner: str) -> Reply:
    spaces = 'xmlns="DAV:" xmlns:C="urn:ietf:params:xml:ns:caldav"'
    body: Any = f'<?xml version="1.0"?><multistatus {spaces}>{inner}</multistatus>'
    return Reply(207, body.encode(), {"content-type": "application/xml"})
