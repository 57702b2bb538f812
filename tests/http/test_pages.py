"""The four usual kinds of pagination, against a real server."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from support.httpserver import Reply, Seen, http_server, json_reply
from syncline import Transient
from syncline.http import BlockingHttpClient, HttpClient, Response

Local = Callable[..., HttpClient]
TICKETS = list(range(25))


async def collect(pages: AsyncIterator[Response], *keys: str) -> list[Any]:
    found = []
    async for page in pages:
        value = page.json()
        for key in keys:
            value = value[key]
        found.extend(value)
    return found


def by_link(seen: Seen) -> Reply:
    start = int(seen.query.get("from", 0))
    following = start + 10
    link = f'<?from={following}&size=10>; rel="next", </>; rel="first"'
    headers = {"link": link} if following < len(TICKETS) else {}
    reply = json_reply(TICKETS[start:following])
    return Reply(200, reply.body, {**reply.headers, **headers})


async def test_pages_follow_links(local: Local) -> None:
    async with http_server(by_link) as server, local(server.url) as http:
        assert await collect(http.pages_by_link("/t", params={"size": 10})) == TICKETS

    assert [seen.target for seen in server.seen] == [
        "/t?size=10",
        "/t?from=10&size=10",
        "/t?from=20&size=10",
    ]


async def test_a_circle_of_links_is_transient(local: Local) -> None:
    reply = json_reply([1], link='</next>; rel="next"')
    async with http_server(lambda _: reply) as server, local(server.url) as http:
        with pytest.raises(Transient, match="circle"):
            await collect(http.pages_by_link())


def by_number(seen: Seen) -> Reply:
    start = (int(seen.query["page"]) - 1) * 10
    return json_reply({"data": {"rows": TICKETS[start : start + 10]}})


async def test_page_numbers_end_at_a_short_page(local: Local) -> None:
    async with http_server(by_number) as server, local(server.url) as http:
        pages = http.pages_by_number(items="data.rows", size=10)
        assert await collect(pages, "data", "rows") == TICKETS

    assert [seen.query for seen in server.seen][-1] == {"page": "3", "per_page": "10"}
    assert len(server.seen) == 3


async def test_page_numbers_end_at_an_empty_page(local: Local) -> None:
    async with http_server(by_number) as server, local(server.url) as http:
        pages = http.pages_by_number(items=lambda body: body["data"]["rows"])
        assert await collect(pages, "data", "rows") == TICKETS

    assert len(server.seen) == 4


@pytest.mark.parametrize(("cap", "calls"), [(10, 3), (4, 7), (5, 6)])
async def test_offsets_follow_the_number_of_items(local: Local, cap: int, calls: int) -> None:
    """This also works if the provider returns fewer items than requested."""

    def answer(seen: Seen) -> Reply:
        start = int(seen.query["offset"])
        return json_reply({"items": TICKETS[start : start + min(cap, int(seen.query["limit"]))]})

    async with http_server(answer) as server, local(server.url) as http:
        assert await collect(http.pages_by_offset(items="items", limit=10), "items") == TICKETS

    assert len(server.seen) == calls


async def test_pages_follow_cursors(local: Local) -> None:
    def answer(seen: Seen) -> Reply:
        start = int(seen.query.get("after", 0))
        following = start + 10 if start + 10 < len(TICKETS) else None
        return json_reply({"items": TICKETS[start : start + 10], "meta": {"next": following}})

    async with http_server(answer) as server, local(server.url) as http:
        pages = http.pages_by_cursor(next_cursor="meta.next", parameter="after")
        assert await collect(pages, "items") == TICKETS
        rest = http.pages_by_cursor(next_cursor="meta.next", parameter="after", cursor=20)
        assert await collect(rest, "items") == TICKETS[20:]


async def test_a_repeated_cursor_is_transient(local: Local) -> None:
    reply = json_reply({"items": [], "next": "same"})
    async with http_server(lambda _: reply) as server, local(server.url) as http:
        with pytest.raises(Transient, match="circle"):
            await collect(http.pages_by_cursor(next_cursor="next"), "items")


@pytest.mark.parametrize("body", [b"<html>", b'{"items": 3}', b"[]"])
async def test_a_response_that_is_not_a_page_is_transient(local: Local, body: bytes) -> None:
    async with http_server([Reply(200, body)]) as server, local(server.url) as http:
        with pytest.raises(Transient):
            await collect(http.pages_by_number(items="items"))


async def test_a_plain_function_can_read_pages(local: Local) -> None:
    import asyncio

    def call(url: str) -> list[Any]:
        with BlockingHttpClient(local(url)) as http:
            one = http.get("/t").json()
            pages = list(http.pages_by_link("/t"))
        return [one, *(page.json() for page in pages)]

    async with http_server(by_link) as server:
        found = await asyncio.to_thread(call, server.url)

    assert found == [TICKETS[:10], TICKETS[:10], TICKETS[10:20], TICKETS[20:]]
