"""Matrix: timelines, the gaps that a sync leaves, redactions, limits and tokens."""

from collections.abc import Iterator
from typing import Any

import pytest

from support.homeserver import ROOM, TOKEN, HomeserverDouble
from support.httpserver import HttpServer, Reply, json_reply, threaded_server
from syncline import Permanent, RateLimited, Transient, Unauthorized
from syncline.connectors.matrix import Matrix
from syncline.testing.conformance import ConnectorConformance
from syncline.testing.trial import TrialPage, prepare_trial, take_pages

CREDENTIALS = {"access_token": TOKEN}


@pytest.fixture
def homeserver() -> HomeserverDouble:
    double = HomeserverDouble()
    for number in range(7):
        double.send(f"message {number}")
    return double


@pytest.fixture
def server(homeserver: HomeserverDouble) -> Iterator[HttpServer]:
    with threaded_server(homeserver) as server:
        yield server


def configuration(server: HttpServer, **more: Any) -> dict[str, Any]:
    return {"base_url": server.url, "page_size": 2} | more


async def run(config: dict[str, Any], cursor: Any = None) -> list[TrialPage]:
    return await take_pages(prepare_trial(Matrix()), config, credentials=CREDENTIALS, cursor=cursor)


def told(pages: list[TrialPage]) -> list[str]:
    return [s.payload["content"]["body"] for page in pages for s in page.signals]


class TestConformance(ConnectorConformance):
    connector = Matrix
    credentials = CREDENTIALS

    @pytest.fixture(autouse=True)
    def served(self, server: HttpServer) -> None:
        self.config = configuration(server)


async def test_a_full_sync_reads_back_to_the_beginning(server: HttpServer) -> None:
    pages = await run(configuration(server))

    assert sorted(told(pages)) == [f"message {number}" for number in range(7)]
    assert pages[-1].next_cursor == {"since": "s7"}
    payload = pages[0].signals[0].payload
    assert payload["room_id"] == ROOM
    assert "unsigned" not in payload


async def test_a_gap_is_read_back_to_known_events(
    server: HttpServer, homeserver: HomeserverDouble
) -> None:
    [*_, last] = await run(configuration(server))
    for number in range(7, 12):
        homeserver.send(f"message {number}")

    pages = await run(configuration(server), last.next_cursor)

    assert sorted(told(pages)) == sorted(f"message {number}" for number in range(7, 12))
    assert pages[0].next_cursor["gaps"] == [{"room": ROOM, "from": "t10", "to": "s7"}]


async def test_the_token_stays_if_nothing_is_new(server: HttpServer) -> None:
    [*_, last] = await run(configuration(server))

    [nothing] = await run(configuration(server), last.next_cursor)

    assert (nothing.signals, nothing.next_cursor) == ((), last.next_cursor)


async def test_redactions_are_events(server: HttpServer, homeserver: HomeserverDouble) -> None:
    [*_, last] = await run(configuration(server))
    homeserver.send("spam", kind="m.room.redaction", redacts="$event-3")

    [page] = await run(configuration(server), last.next_cursor)

    assert [(s.kind, s.payload["redacts"]) for s in page.signals] == [
        ("m.room.redaction", "$event-3")
    ]


async def test_rooms_are_chosen_by_the_filter(server: HttpServer) -> None:
    await run(configuration(server, rooms=[ROOM]))

    assert f'"rooms":["{ROOM}"]' in server.seen[0].query["filter"]


async def test_a_gap_in_a_forbidden_room_is_skipped(
    server: HttpServer, homeserver: HomeserverDouble
) -> None:
    homeserver.replies = [json_reply({"errcode": "M_FORBIDDEN"}, 403)]
    cursor = {"since": "s7", "gaps": [{"room": ROOM, "from": "t5"}]}

    [page] = await run(configuration(server), cursor)

    assert (page.signals, page.next_cursor) == ((), {"since": "s7"})


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (json_reply({"errcode": "M_UNKNOWN_TOKEN", "error": "gone"}, 401), Unauthorized),
        (json_reply({"rooms": {}}), Transient),
        (json_reply({"rooms": {"join": {ROOM: {"timeline": {"events": [{}]}}}}}), Transient),
        (Reply(200, b"[]"), Transient),
    ],
)
async def test_failures_become_the_right_errors(
    server: HttpServer, homeserver: HomeserverDouble, reply: Reply, expected: type[Exception]
) -> None:
    homeserver.replies = [reply]

    with pytest.raises(expected):
        await run(configuration(server))


async def test_the_wait_in_the_body_becomes_the_hint(
    server: HttpServer, homeserver: HomeserverDouble
) -> None:
    limit = {"errcode": "M_LIMIT_EXCEEDED", "error": "slow down", "retry_after_ms": 2500}
    homeserver.replies = [json_reply(limit, 429)]

    with pytest.raises(RateLimited) as raised:
        await run(configuration(server))

    assert raised.value.retry_after_seconds == 2.5


async def test_wrong_configurations_and_cursors_are_refused(server: HttpServer) -> None:
    with pytest.raises(Permanent, match=r"config\.base_url"):
        await run({"base_url": "example.org"})
    with pytest.raises(Permanent, match="cursor: expected"):
        await run(configuration(server), {"gaps": 1})
