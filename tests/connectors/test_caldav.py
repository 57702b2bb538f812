"""Calendars: changes and deletions by token, forgotten tokens, and broken objects."""

from collections.abc import Iterator
from typing import Any

import pytest

from support.calendar import PASSWORD, PATH, USER, CalendarDouble
from support.httpserver import HttpServer, Reply, threaded_server
from syncline import Permanent, RateLimited, Transient, Unauthorized
from syncline.connectors.caldav.connector import CalDav
from syncline.testing.conformance import ConnectorConformance
from syncline.testing.trial import TrialPage, one_run, prepare_trial, take_pages, trial_connection

CREDENTIALS = {"username": USER, "password": PASSWORD}


@pytest.fixture
def calendar() -> CalendarDouble:
    double = CalendarDouble()
    for name in "abcde":
        double.put(name, f"meeting {name}")
    return double


@pytest.fixture
def server(calendar: CalendarDouble) -> Iterator[HttpServer]:
    with threaded_server(calendar) as server:
        yield server


def configuration(server: HttpServer, **more: Any) -> dict[str, Any]:
    return {"url": f"{server.url}{PATH}", "page_size": 2} | more


async def run(config: dict[str, Any], cursor: Any = None) -> list[TrialPage]:
    return await take_pages(prepare_trial(CalDav()), config, credentials=CREDENTIALS, cursor=cursor)


def told(pages: list[TrialPage]) -> list[tuple[str, Any]]:
    return [
        (s.kind, [one["summary"] for one in s.payload.get("objects", ())])
        for page in pages
        for s in page.signals
    ]


class TestConformance(ConnectorConformance):
    connector = CalDav
    credentials = CREDENTIALS

    @pytest.fixture(autouse=True)
    def served(self, server: HttpServer) -> None:
        self.config = configuration(server)


async def test_a_full_sync_brings_every_object_once(server: HttpServer) -> None:
    pages = await run(configuration(server))

    assert told(pages) == [("event_changed", [f"meeting {name}"]) for name in "abcde"]
    assert len(pages) == 3
    [one] = pages[0].signals[0].payload["objects"]
    assert one["dtstart"] == "2024-06-01"
    assert one["rrule"] == "FREQ=WEEKLY;COUNT=3"


async def test_changes_and_deletions_come_from_the_token(
    server: HttpServer, calendar: CalendarDouble
) -> None:
    [*_, last] = await run(configuration(server))
    calendar.put("b", "moved")
    calendar.delete("d")

    pages = await run(configuration(server), last.next_cursor)

    assert told(pages) == [("event_changed", ["moved"]), ("object_deleted", [])]
    [nothing] = await run(configuration(server), pages[-1].next_cursor)
    assert nothing.signals == ()


async def test_what_changes_while_pages_are_read_comes_after(
    server: HttpServer, calendar: CalendarDouble
) -> None:
    """The next run continues after the first page; a later one brings what changed before it."""
    connector = prepare_trial(CalDav())
    connection = trial_connection(connector, configuration(server), CREDENTIALS)
    run_once = one_run(connector, connection, None)
    first = await anext(run_once)
    await run_once.aclose()
    calendar.put("a", "changed after it was read")
    calendar.delete("e")

    rest = await run(configuration(server), first.next_cursor)
    later = await run(configuration(server), rest[-1].next_cursor)

    assert told([first]) == [("event_changed", ["meeting a"]), ("event_changed", ["meeting b"])]
    assert told(rest) == [("event_changed", ["meeting c"]), ("event_changed", ["meeting d"])]
    assert told(later) == [
        ("event_changed", ["changed after it was read"]),
        ("object_deleted", []),
    ]


async def test_a_forgotten_token_is_reported_and_everything_is_read_again(
    server: HttpServer, calendar: CalendarDouble
) -> None:
    [*_, last] = await run(configuration(server))
    calendar.forgotten = 5

    pages = await run(configuration(server), last.next_cursor)

    assert [kind for kind, _ in told(pages)] == ["calendar_reset"] + ["event_changed"] * 5


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (Reply(429, headers={"retry-after": "5"}), RateLimited),
        (Reply(401), Unauthorized),
        (Reply(207, b"<html/>"), Transient),
        (Reply(207, b"<!DOCTYPE x [<!ENTITY a 'b'>]><multistatus/>"), Transient),
        (Reply(207, b'<multistatus xmlns="DAV:"/>'), Permanent),
        (Reply(403), Permanent),
    ],
)
async def test_failures_become_the_right_errors(
    server: HttpServer, calendar: CalendarDouble, reply: Reply, expected: type[Exception]
) -> None:
    calendar.replies = [reply]

    with pytest.raises(expected):
        await run(configuration(server))


async def test_the_error_for_a_broken_object_names_its_address(
    server: HttpServer, calendar: CalendarDouble
) -> None:
    calendar.changes.append((f"{PATH}x.ics", "no calendar"))

    with pytest.raises(Permanent, match=r"x\.ics is not a calendar object"):
        await run(configuration(server))


async def test_a_wrong_configuration_names_its_field() -> None:
    with pytest.raises(Permanent, match=r"config\.url: Field required"):
        await run({})
