"""A simulated ticket service that shows every state of a connection, without an account."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from itertools import count, islice, takewhile
from typing import Any, NamedTuple
from uuid import UUID

from syncline.errors import Permanent, RateLimited, Transient, Unauthorized
from syncline.model import Connection, Signal, SyncResult
from syncline.sdk.connector import Connector

# How an account behaves, and its events per minute unless its config has a rate.
PERSONALITIES = {
    "steady": 6.0,
    "busy": 40.0,
    "quiet": 0.2,
    "slow": 6.0,
    "rate_limited": 12.0,
    "flaky": 6.0,
    "expired": 6.0,
    "broken": 6.0,
}
CONFIG_SCHEMA = {
    "type": "object",
    "properties": {
        "personality": {
            "type": "string",
            "title": "Personality",
            "description": "How the account behaves.",
            "enum": list(PERSONALITIES),
            "default": "steady",
        },
        "rate": {
            "type": "number",
            "title": "Rate",
            "description": "Events per minute.",
            "minimum": 0.01,
            "maximum": 600,
        },
    },
}
PAGE_SIZE = 25
BACKLOG = 65  # events before the first sync: three pages
RETENTION = timedelta(days=1)  # older events are gone, so a long pause is caught up quickly
LOGIN_LASTS = timedelta(minutes=5)
QUOTA_WINDOW, QUOTA_OPEN = 45.0, 25.0  # seconds: after the open part, wait for the next window
FAILURE_RATE = 0.25
OPENED_AT = datetime(2024, 1, 1, tzinfo=UTC)

# Three events make a lap: a ticket arrives, one of two laps ago moves, one of five laps ago ends.
LAP = (("ticket_created", 0), ("ticket_updated", 2), ("ticket_closed", 5))
PEOPLE = ("Amira", "Bram", "Chidi", "Dana", "Elif", "Femi", "Greta", "Hiro", "Ines", "Jonas")
THINGS = ("Invoice", "Login page", "Export", "Dashboard", "Webhook", "Mobile app", "Search")
TROUBLES = ("shows an error", "is slow", "lost its settings", "is cut off when printed", "is empty")
CHANGES = ("asked for a screenshot", "passed on to billing", "could reproduce it", "raised it")
ENDINGS = ("fixed", "explained", "duplicate", "went away by itself")

# A dozen accounts of three tenants, each ready for `connections.create(**account)`.
DEMO_CONNECTIONS: tuple[dict[str, Any], ...] = tuple(
    {
        "tenant_id": tenant_id,
        "provider_slug": "demo",
        "external_id": external_id,
        "config": {"personality": personality},
        "interval_seconds": interval_seconds,
    }
    for tenant_id, external_id, personality, interval_seconds in (
        ("acme", "support-desk", "steady", 60),
        ("acme", "sales-inbox", "busy", 60),
        ("acme", "old-phone-system", "flaky", 60),
        ("acme", "partner-portal", "expired", 90),
        ("birch", "help-center", "steady", 60),
        ("birch", "warehouse", "slow", 60),
        ("birch", "web-shop", "rate_limited", 60),
        ("birch", "board-office", "quiet", 120),
        ("cobalt", "field-service", "steady", 90),
        ("cobalt", "status-page", "busy", 120),
        ("cobalt", "beta-program", "flaky", 60),
        ("cobalt", "closed-branch", "broken", 60),
    )
)


class DemoTickets(Connector):
    """Syncs the tickets of an imaginary help desk.

    Config: `personality` (default "steady") and `rate`, events per minute. All events follow from
    the account's name and the time, so a restart neither loses nor repeats any.
    """

    provider = "demo"
    title = "Demo tickets"
    auth = ("none", "any")
    config_schema = CONFIG_SCHEMA

    def __init__(
        self,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._now = now
        self._pause = pause
        self._signed_in_until: dict[UUID, datetime | None] = {}

    async def sync(self, connection: Connection, cursor: Any) -> SyncResult:
        account, since, now = Account.parse(connection), _parse_cursor(cursor), self._now()
        if account.personality == "slow":
            await self._pause(2 + 3 * account.chance("pause", now))
        self._misbehave(account, connection.id, now)

        if since is None:
            since = (connection.created_at or now) - BACKLOG * account.spacing
        kept_since = min(max(since, now - RETENTION), now)
        events = account.events(after=kept_since, until=now)
        page = list(islice(events, PAGE_SIZE))
        if not page:
            return SyncResult(next_cursor=cursor)
        more_waiting = next(events, None) is not None
        return SyncResult(page, {"since": page[-1].occurred_at.isoformat()}, more_waiting)

    def _misbehave(self, account: "Account", connection_id: UUID, now: datetime) -> None:
        """Raise the error that the account's personality has at this moment, if any."""
        match account.personality:
            case "rate_limited":
                offset = account.chance("window") * QUOTA_WINDOW
                elapsed = (now.timestamp() + offset) % QUOTA_WINDOW
                if elapsed >= QUOTA_OPEN:
                    wait = QUOTA_WINDOW - elapsed
                    raise RateLimited("the quota is used up", retry_after_seconds=wait)
            case "flaky":
                if account.chance("failure", now) < FAILURE_RATE:
                    raise Transient("the ticket service answered 503 Service Unavailable")
            case "expired":
                self._check_login(connection_id, now)
            case "broken":
                raise Permanent("this account was closed by its owner")

    def _check_login(self, connection_id: UUID, now: datetime) -> None:
        """Refuse an expired login, but accept it for a while after the connection was resumed."""
        until = self._signed_in_until.get(connection_id, now)
        if until is None:  # a sync after a refusal means that somebody signed in and resumed
            self._signed_in_until[connection_id] = now + LOGIN_LASTS
        elif now >= until:
            self._signed_in_until[connection_id] = None
            raise Unauthorized("the login has expired; sign in again, then resume the connection")


class Account(NamedTuple):
    """The help desk of one account: an endless series of events, each at its own instant."""

    name: str
    personality: str
    spacing: timedelta

    @classmethod
    def parse(cls, connection: Connection) -> "Account":
        config = connection.config
        if not isinstance(config, dict):
            raise Permanent("config: expected an object")
        personality = config.get("personality", "steady")
        if not isinstance(personality, str) or personality not in PERSONALITIES:
            raise Permanent(f"config.personality: expected one of {', '.join(PERSONALITIES)}")
        rate = config.get("rate", PERSONALITIES[personality])
        if type(rate) not in (int, float) or not 0.01 <= rate <= 600:
            raise Permanent("config.rate: expected events per minute, a number from 0.01 to 600")
        name = f"{connection.tenant_id}/{connection.external_id}"
        return cls(name, personality, timedelta(minutes=1) / rate)

    def events(self, *, after: datetime, until: datetime) -> "takewhile[Signal]":
        """Return the events of this period, oldest first."""
        nearest = (after - OPENED_AT) // self.spacing
        first = nearest if self._instant(nearest) > after else nearest + 1
        return takewhile(lambda event: event.occurred_at <= until, map(self._event, count(first)))

    def chance(self, *question: object) -> float:
        """Return a number in [0, 1) that depends only on the arguments."""
        digest = hashlib.sha256(repr((self.name, *map(str, question))).encode()).digest()
        return int.from_bytes(digest[:6]) / 2**48

    def _event(self, number: int) -> Signal:
        lap, step = divmod(number, len(LAP))
        kind, age = LAP[step]
        ticket, occurred_at = f"T-{lap - age}", self._instant(number)
        payload = {
            "ticket": ticket,
            "subject": f"{self._pick(THINGS, ticket)} {self._pick(TROUBLES, ticket)}",
            "requester": self._pick(PEOPLE, ticket),
        }
        if kind == "ticket_updated":
            payload["change"] = self._pick(CHANGES, ticket)
        if kind == "ticket_closed":
            payload["resolution"] = self._pick(ENDINGS, ticket)
        # The key has the time, because with another rate a number means another ticket.
        key = f"{ticket}:{kind}:{occurred_at.isoformat()}"
        return Signal(kind, occurred_at, payload, dedupe_key=key)

    def _instant(self, number: int) -> datetime:
        # Add less than one spacing, so that instants stay in the order of their numbers.
        return OPENED_AT + self.spacing * number + self.spacing * 0.99 * self.chance(number)

    def _pick(self, options: tuple[str, ...], ticket: str) -> str:
        return options[int(self.chance(*options, ticket) * len(options))]


def _parse_cursor(cursor: Any) -> datetime | None:
    if cursor is None:
        return None
    try:
        since = datetime.fromisoformat(cursor["since"])
    except (KeyError, TypeError, ValueError):
        since = None
    if since is None or since.tzinfo is None:
        raise Permanent('cursor: expected {"since": a time with its zone}')
    return since
