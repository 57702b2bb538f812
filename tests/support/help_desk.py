"""A help desk's HTTP API in memory, and connectors of every kind for it."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

from syncline import Connection, Connector, Signal, SyncResult
from syncline.http import Request, Response
from syncline.http.environment import Send
from syncline.testing.checks import Subject

URL = "https://desk.example"
PAGE_SIZE = 2
OPENED_AT = datetime(2025, 1, 1, 9, tzinfo=UTC)
TICKETS = [
    {"id": n, "title": f"Ticket {n}", "at": (OPENED_AT + timedelta(hours=n)).isoformat()}
    for n in range(1, 6)
]


class HelpDeskServer:
    """Answers `/tickets?after=` without a socket."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    async def __call__(self, request: Request, send: Send) -> Response:
        self.requests.append(request)
        after = int(request.url.params["after"])
        found = [ticket for ticket in TICKETS if ticket["id"] > after][:PAGE_SIZE]  # type: ignore[operator]
        headers = {"content-type": "application/json", "set-cookie": "session=abc"}
        return Response(200, headers, json={"tickets": found})


class HelpDesk(Connector):
    """A correct connector; tests override its parts to break it."""

    provider = "desk"

    async def sync(self, connection: Connection, cursor: Any) -> Any:
        return self.page(await self.tickets(connection, cursor), cursor)

    async def tickets(self, connection: Connection, cursor: Any) -> list[dict[str, Any]]:
        async with self.http(connection, base_url=URL) as http:
            answer = await http.get("tickets", params={"after": (cursor or {}).get("after", 0)})
        found: list[dict[str, Any]] = answer.json()["tickets"]
        return found

    def page(self, tickets: list[dict[str, Any]], cursor: Any) -> SyncResult:
        return SyncResult(
            [self.signal(ticket) for ticket in tickets],
            {"after": tickets[-1]["id"]} if tickets else cursor,
            has_more=len(tickets) == PAGE_SIZE,
        )

    def signal(self, ticket: dict[str, Any]) -> Signal:
        at = datetime.fromisoformat(ticket["at"])
        return Signal("ticket", at, ticket, dedupe_key=str(ticket["id"]))


class StreamingHelpDesk(HelpDesk):
    """Yields all pages in one run."""

    async def sync(  # type: ignore[override]  # another kind of connector
        self, connection: Connection, cursor: Any
    ) -> AsyncIterator[SyncResult]:
        while True:
            page = self.page(await self.tickets(connection, cursor), cursor)
            cursor = page.next_cursor
            yield SyncResult(page.signals, cursor)
            if not page.has_more:
                return


class BlockingHelpDesk(HelpDesk):
    """A plain function, which runs in a thread."""

    def sync(self, connection: Connection, cursor: Any) -> SyncResult:  # type: ignore[override]
        with self.blocking_http(connection, base_url=URL) as http:
            answer = http.get("tickets", params={"after": (cursor or {}).get("after", 0)})
        return self.page(answer.json()["tickets"], cursor)


def help_desk_subject(make: Any = HelpDesk, **options: Any) -> Subject:
    """Return a connector to check, in front of a help desk of its own."""
    return Subject(make=make, answers=HelpDeskServer, max_pages=10, **options)
