"""JSON APIs by configuration alone: pagination, changes, and failures."""

import json
import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.httpserver import HttpServer, Reply, json_reply, threaded_server
from support.records_api import TOKEN, RecordsApi
from syncline import Permanent, RateLimited, Transient, Unauthorized
from syncline.connectors.config import ConfigurationReader, read_configuration
from syncline.connectors.rest.config import Api
from syncline.connectors.rest.connector import Rest, _digest
from syncline.testing.conformance import ConnectorConformance
from syncline.testing.trial import TrialPage, prepare_trial, take_pages, trial_connection, walk

STYLES: dict[str, dict[str, Any]] = {
    "link": {"style": "link"},
    "header": {"style": "url", "header": "Next-Page"},
    "url": {"style": "url", "field": "meta.next"},
    "token": {"style": "token", "field": "meta.token"},
    "page": {"style": "page", "size": 2},
    "offset": {"style": "offset", "size": 2},
}
CREDENTIALS = {"token": TOKEN}
PAGE = Path(__file__).parents[2] / "docs" / "connectors" / "rest.md"


@pytest.fixture
def listing() -> RecordsApi:
    return RecordsApi(5)


@pytest.fixture
def server(listing: RecordsApi) -> Iterator[HttpServer]:
    with threaded_server(listing) as server:
        yield server


def configuration(server: HttpServer, style: str = "link", **more: Any) -> dict[str, Any]:
    return {
        "base_url": f"{server.url}/api",
        "path": style,
        "records": "data.notes",
        "kind": "note",
        "pagination": STYLES[style],
        "since": {"parameter": "since", "field": "at"},
        "tombstones": {"field": "gone"},
    } | more


async def run(config: dict[str, Any], cursor: Any = None, **credentials: str) -> list[TrialPage]:
    return await take_pages(
        prepare_trial(Rest()), config, credentials=credentials or CREDENTIALS, cursor=cursor
    )


def told(pages: list[TrialPage]) -> list[Any]:
    return [
        (signal.kind, signal.payload["id"], signal.payload.get("text"))
        for page in pages
        for signal in page.signals
    ]


class TestConformance(ConnectorConformance):
    connector = Rest
    credentials = CREDENTIALS

    # A cursor has a URL, a token or a number; the other styles share the code of one of these.
    @pytest.fixture(autouse=True, params=["link", "token", "offset"])
    def served(self, request: pytest.FixtureRequest, server: HttpServer) -> None:
        self.config = configuration(server, request.param)


@pytest.mark.parametrize("style", STYLES)
async def test_every_pagination_style_brings_all_records_once(
    server: HttpServer, listing: RecordsApi, style: str
) -> None:
    pages = await run(configuration(server, style))

    assert told(pages) == [("note", number, text) for number, text in listing.held().items()]
    assert len(pages) == 3
    assert pages[-1].next_cursor == {"since": listing.changed_at}


async def test_changes_and_deletions_come_after_the_cursor(
    server: HttpServer, listing: RecordsApi
) -> None:
    [*_, last] = await run(configuration(server))
    listing.put(2, "edited")
    listing.delete(4)

    pages = await run(configuration(server), last.next_cursor)

    assert told(pages) == [("note", 2, "edited"), ("note_deleted", 4, None)]


async def test_an_unchanged_listing_costs_a_304(server: HttpServer, listing: RecordsApi) -> None:
    [*_, last] = await run(configuration(server))
    [empty] = await run(configuration(server), last.next_cursor)

    [again] = await run(configuration(server), empty.next_cursor)

    assert server.seen[-1].headers["if-none-match"] == f'"{listing.changed_at}"'
    assert (again.signals, again.next_cursor) == ((), empty.next_cursor)
    listing.put(1, "changed")
    assert told(await run(configuration(server), again.next_cursor)) == [("note", 1, "changed")]


async def test_changes_during_a_descending_listing_are_not_lost(
    server: HttpServer, listing: RecordsApi
) -> None:
    """A record that moves to the front during a listing comes with the next one."""
    since = {"parameter": "since", "field": "at", "order": "descending"}
    config = configuration(server, "token", since=since, params={"sort": "-at"})
    found: list[Any] = []
    connector = prepare_trial(Rest())
    cursor = None
    for step in range(2):
        async for page in _stream(connector, config, cursor):
            found += [(s.payload["id"], s.payload["text"]) for s in page.signals]
            cursor = page.next_cursor
            if step == 0 and len(found) == 2:
                listing.put(1, "moved to the front")

    assert {number for number, _ in found} == {1, 2, 3, 4, 5}
    assert (1, "moved to the front") in found


async def _stream(connector: Any, config: Any, cursor: Any) -> Any:
    async for page in walk(connector, trial_connection(connector, config, CREDENTIALS), cursor):
        yield page


async def test_a_forgotten_page_restarts_the_listing(
    server: HttpServer, listing: RecordsApi
) -> None:
    first, *_ = await run(configuration(server, "token"))
    listing.replies = [json_reply({"message": "unknown token"}, 410)]

    pages = await run(configuration(server, "token"), first.next_cursor)

    assert [number for _, number, _ in told(pages)] == [1, 2, 3, 4, 5]


async def test_an_overlap_asks_for_earlier_records(server: HttpServer, listing: RecordsApi) -> None:
    since = {"parameter": "since", "field": "at", "overlap_seconds": 2}

    pages = await run(configuration(server, since=since), {"since": listing.changed_at})

    assert [number for _, number, _ in told(pages)] == [4, 5]


async def test_the_first_listing_may_start_at_a_value(
    server: HttpServer, listing: RecordsApi
) -> None:
    since = {"parameter": "since", "field": "at", "start": listing.changed_at - 1}

    assert told(await run(configuration(server, since=since))) == [("note", 5, "note 5")]


async def test_a_key_in_the_url_stays_out_of_the_cursor(server: HttpServer) -> None:
    config = configuration(server, "url", auth={"kind": "query", "name": "key"})

    pages = await run(config)

    assert len(told(pages)) == 5
    assert all(TOKEN not in str(page.next_cursor) for page in pages)


@pytest.mark.parametrize(
    "auth", [{}, {"kind": "header", "name": "Authorization", "prefix": "Token "}]
)
async def test_the_token_is_sent_as_configured(server: HttpServer, auth: Any) -> None:
    assert len(told(await run(configuration(server, auth=auth)))) == 5


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (Reply(429, headers={"retry-after": "30"}), RateLimited),
        (Reply(503), Transient),
        (json_reply({"message": "expired"}, 401), Unauthorized),
        (json_reply({"data": None}), Permanent),
    ],
)
async def test_failures_become_the_right_errors(
    server: HttpServer, listing: RecordsApi, reply: Reply, expected: type[Exception]
) -> None:
    listing.replies = [reply]

    with pytest.raises(expected):
        await run(configuration(server))


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ({"base_url": "ftp://x"}, "config.base_url"),
        ({"pagination": {"style": "magic"}}, "config.pagination.style"),
        ({"since": {"field": "at"}}, "config.since.parameter: Field required"),
        ({"colour": "red"}, "config.colour"),
        ({"id": "number"}, "config.id: a record has no id at 'number'"),
        ({"time": "text"}, "config.time: the record 1 has no time at 'text'"),
        ({"since": None}, "config.time: expected the path"),
        ({"records": "data"}, "config.records: the answer has no list of objects at 'data'"),
    ],
)
async def test_a_wrong_configuration_names_its_field(
    server: HttpServer, more: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(Permanent, match=complaint.replace(".", r"\.")):
        await run(configuration(server, **more))


async def test_without_a_cursor_field_only_changed_records_have_new_keys(
    server: HttpServer, listing: RecordsApi
) -> None:
    config = configuration(server, since=None, time="at")
    before = {s.dedupe_key for page in await run(config) for s in page.signals}
    listing.put(3, "edited")

    after = {s.dedupe_key for page in await run(config) for s in page.signals}

    assert len(after - before) == 1


def test_the_documented_example_is_valid() -> None:
    [example] = re.findall(r"^```json\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)

    assert read_configuration(Api, json.loads(example)).pagination.header == "Next-Page"


async def test_a_bad_cursor_is_refused(server: HttpServer) -> None:
    with pytest.raises(Permanent, match="cursor: expected"):
        await run(configuration(server), ["a"])


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.dictionaries(st.text(), JSON_VALUES), st.booleans())
def test_the_digest_of_a_record_never_changes(record: dict[str, Any], is_small: bool) -> None:
    """It is a part of the dedupe key: with another one, every record would come again."""
    text = json.dumps(record, sort_keys=True)
    assert _digest(record, is_small=is_small) == sha256(text.encode()).hexdigest()[:16]


def test_configurations_are_remembered_by_their_text_and_not_forever() -> None:
    reader = ConfigurationReader(Api, remembered=2)
    one = {"base_url": "https://api.example", "params": {"all": 1}}
    other = {"base_url": "https://api.example", "params": {"all": True}}

    assert reader.read(one) is reader.read(dict(one))
    assert reader.read(other).params == {"all": True}
    assert reader.read(one).params["all"] is not True
    first = reader.read(one)
    reader.read({"base_url": "https://third.example"})
    assert reader.read(one) is not first
    with pytest.raises(Permanent, match=r"config\.base_url"):
        reader.read({"base_url": 3})
