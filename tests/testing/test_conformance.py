"""The conformance suite: sound connectors pass, and each flaw is found by the check for it."""

import asyncio
from collections.abc import AsyncIterator
from itertools import count
from typing import Any
from uuid import uuid4

import pytest

from support.help_desk import (
    TICKETS,
    BlockingHelpDesk,
    HelpDesk,
    StreamingHelpDesk,
    help_desk_subject,
)
from syncline import (
    Connection,
    Connector,
    Permanent,
    RateLimited,
    Signal,
    SyncError,
    SyncResult,
    Transient,
)
from syncline.connectors.demo import DemoTickets
from syncline.testing.checks import Subject
from syncline.testing.conformance import CHECKS, ConnectorConformance, examine

BY_NAME = {check.name: check for check in CHECKS}


class TestHelpDesk(ConnectorConformance):
    """An author's own test class, over connectors of each kind."""

    @pytest.fixture(autouse=True, params=[HelpDesk, StreamingHelpDesk, BlockingHelpDesk])
    def kind_of_connector(self, request: pytest.FixtureRequest) -> None:
        self.kind = request.param

    def subject(self) -> Subject:
        return help_desk_subject(self.kind, credentials={"token": "t0k3n-of-the-desk"})


class TestWithoutHttp(ConnectorConformance):
    connector = DemoTickets
    config = {"personality": "steady"}  # noqa: RUF012


class NeverEnds(HelpDesk):
    def page(self, tickets: Any, cursor: Any) -> SyncResult:
        return SyncResult((), {"after": (cursor or {"after": 0})["after"] + 1}, has_more=True)


class NoPage(HelpDesk):
    async def sync(  # type: ignore[override]  # another kind of connector
        self, connection: Connection, cursor: Any
    ) -> AsyncIterator[SyncResult]:
        pages: list[SyncResult] = []
        for page in pages:
            yield page


class NotAResult(HelpDesk):
    def page(self, tickets: Any, cursor: Any) -> Any:
        return {"signals": tickets}


class GoesInCircles(HelpDesk):
    async def sync(self, connection: Connection, cursor: Any) -> SyncResult:
        number = (cursor or {}).get("after", 0) + 1
        return SyncResult((), {"after": number % 3}, has_more=True)


class CursorIsNoJson(HelpDesk):
    def page(self, tickets: Any, cursor: Any) -> SyncResult:
        return SyncResult((), {"after": (1, 2)})


class RemembersCalls(HelpDesk):
    calls = count()

    def signal(self, ticket: dict[str, Any]) -> Signal:
        return super().signal({**ticket, "call": next(self.calls)})


class KeyedByPlace(HelpDesk):
    """Reads the last ticket again, under a key made from its place in the answer."""

    def page(self, tickets: Any, cursor: Any) -> SyncResult:
        if not tickets:
            return SyncResult([super().signal(TICKETS[-1])], cursor)
        return super().page(tickets, cursor)

    def signal(self, ticket: dict[str, Any]) -> Signal:
        sound = super().signal(ticket)
        return Signal(sound.kind, sound.occurred_at, sound.payload, f"place:{sound.dedupe_key}")


class NaiveTimes(HelpDesk):
    def signal(self, ticket: dict[str, Any]) -> Signal:
        sound = super().signal(ticket)
        return Signal("ticket", sound.occurred_at.replace(tzinfo=None), ticket, sound.dedupe_key)


class WithKey(HelpDesk):
    def __init__(self, key: Any) -> None:
        self.key = key

    def signal(self, ticket: dict[str, Any]) -> Signal:
        sound = super().signal(ticket)
        return Signal(sound.kind, sound.occurred_at, ticket, self.key())


class ChangesConfig(HelpDesk):
    async def sync(self, connection: Connection, cursor: Any) -> Any:
        connection.config["last"] = cursor
        return await super().sync(connection, cursor)


class KeepsState(HelpDesk):
    """Keeps its place in itself, where several runs get into each other's way."""

    last = 0

    async def sync(self, connection: Connection, cursor: Any) -> Any:
        self.last = (cursor or {}).get("after", self.last)
        found = await self.tickets(connection, {"after": self.last})
        return self.page(found, cursor)


class Recasts(HelpDesk):
    """Turns every error into another one."""

    def __init__(self, make: Any) -> None:
        self.make = make

    async def tickets(self, connection: Connection, cursor: Any) -> list[dict[str, Any]]:
        try:
            return await super().tickets(connection, cursor)
        except SyncError as error:
            raise self.make(error) from None


class SwallowsErrors(HelpDesk):
    async def tickets(self, connection: Connection, cursor: Any) -> list[dict[str, Any]]:
        try:
            return await super().tickets(connection, cursor)
        except SyncError:
            return []


class TakesNonsense(HelpDesk):
    async def tickets(self, connection: Connection, cursor: Any) -> list[dict[str, Any]]:
        try:
            return await super().tickets(connection, cursor)
        except ValueError:
            return []


class TellsSecrets(HelpDesk):
    async def tickets(self, connection: Connection, cursor: Any) -> list[dict[str, Any]]:
        try:
            return await super().tickets(connection, cursor)
        except SyncError as error:
            error.details = {"sent": connection.credentials}
            raise


class CannotBeStopped(HelpDesk):
    async def tickets(self, connection: Connection, cursor: Any) -> list[dict[str, Any]]:
        try:
            return await super().tickets(connection, cursor)
        except asyncio.CancelledError:
            return []


def forget_the_hint(error: SyncError) -> SyncError:
    return RateLimited("slow down") if isinstance(error, RateLimited) else error


FLAWS: list[tuple[Any, str, str]] = [
    (NeverEnds, "pages_end", "still more after 10 pages"),
    (NoPage, "pages_end", "it returned no page"),
    (NotAResult, "pages_end", "returned dict, not a SyncResult"),
    (GoesInCircles, "cursor_advances", "came twice"),
    (CursorIsNoJson, "cursor_advances", "stored as JSON and read back"),
    (RemembersCalls, "same_cursor_same_page", "missing the second time"),
    (KeyedByPlace, "goes_on_from_the_end", "its key was 'place:5' before"),
    (NaiveTimes, "times_have_zones", "no time zone"),
    (lambda: WithKey(lambda: None), "dedupe_keys_are_stable", "no dedupe_key"),
    (lambda: WithKey(lambda: "one"), "dedupe_keys_are_stable", "share the key 'one'"),
    (lambda: WithKey(lambda: str(uuid4())), "dedupe_keys_are_stable", "second walk"),
    (ChangesConfig, "keeps_its_hands_off", "changed the connection"),
    (KeepsState, "serves_many_at_once", "lost the ticket"),
    (lambda: Recasts(lambda _: Transient("?")), "errors_are_mapped", "401 it raised Transient"),
    (lambda: Recasts(lambda _: Permanent("?")), "errors_are_mapped", "not Unauthorized"),
    (lambda: Recasts(forget_the_hint), "errors_are_mapped", "the hint None"),
    (SwallowsErrors, "errors_are_mapped", "taken for a good response"),
    (TakesNonsense, "nonsense_is_an_error", "taken for a good response"),
    (TellsSecrets, "errors_hold_no_secrets", "Unauthorized contains a credential"),
    (CannotBeStopped, "can_be_cancelled", "swallowed CancelledError"),
]


@pytest.mark.parametrize(
    ("make", "name", "complaint"), FLAWS, ids=[f"{flaw[1]}-{flaw[2]}" for flaw in FLAWS]
)
async def test_each_flaw_is_found(make: Any, name: str, complaint: str) -> None:
    found = await examine(BY_NAME[name], help_desk_subject(make))

    assert found["result"] == "failed"
    assert complaint in found["why"]


def test_every_check_has_a_flaw_that_it_finds() -> None:
    assert {flaw[1] for flaw in FLAWS} == set(BY_NAME)


async def test_a_page_that_cannot_be_stored_is_told_once() -> None:
    found = [await examine(check, help_desk_subject(NaiveTimes)) for check in CHECKS]

    failed = {result["check"] for result in found if result["result"] == "failed"}
    assert failed & {"pages_end", "times_have_zones"} == {"pages_end", "times_have_zones"}
    assert "dedupe_keys_are_stable" not in failed


async def test_checks_that_do_not_apply_are_skipped_with_a_reason() -> None:
    without_http = Subject(make=DemoTickets, config={"personality": "steady"})
    in_a_thread = help_desk_subject(BlockingHelpDesk)

    errors = await examine(BY_NAME["errors_are_mapped"], without_http)
    cancelling = await examine(BY_NAME["can_be_cancelled"], in_a_thread)

    assert (errors["result"], errors["why"]) == (
        "skipped",
        "it makes no request through self.http()",
    )
    assert cancelling["result"] == "skipped"


async def test_an_unforeseen_error_fails_the_check() -> None:
    class Broken(Connector):
        provider = "broken"

        async def sync(self, connection: Connection, cursor: Any) -> SyncResult:
            raise KeyError("items")

    found = await examine(BY_NAME["pages_end"], Subject(make=Broken))

    assert (found["result"], found["why"]) == ("failed", "KeyError: 'items'")
