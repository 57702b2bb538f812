"""Failed requests become the errors that the engine knows how to act upon."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from support.httpserver import Reply, http_server, json_reply
from syncline import Permanent, RateLimited, SyncError, Transient, Unauthorized
from syncline.http import HttpClient, Response, wait_seconds
from syncline.http.status_errors import error_of

Local = Callable[..., HttpClient]
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
EPOCH = int(NOW.timestamp())
IN_90_SECONDS = format_datetime(NOW + timedelta(seconds=90), usegmt=True)


@pytest.mark.parametrize(
    ("status", "headers", "error"),
    [
        (401, {}, Unauthorized),
        (429, {}, RateLimited),
        (429, {"retry-after": "7"}, RateLimited),
        (503, {"retry-after": "7"}, RateLimited),
        (503, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "60"}, RateLimited),
        (403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "60"}, RateLimited),
        (403, {"retry-after": "60"}, RateLimited),
        (403, {"x-ratelimit-remaining": "12"}, Permanent),
        (503, {}, Transient),
        (500, {}, Transient),
        (502, {}, Transient),
        (504, {"retry-after": "7"}, Transient),
        (408, {}, Transient),
        (409, {}, Transient),
        (423, {}, Transient),
        (425, {}, Transient),
        (400, {}, Permanent),
        (403, {}, Permanent),
        (404, {}, Permanent),
        (410, {}, Permanent),
        (422, {}, Permanent),
        (300, {}, Permanent),
    ],
)
def test_error_statuses_become_errors(
    status: int, headers: dict[str, str], error: type[SyncError]
) -> None:
    answer = Response(status, headers)

    found = error_of(answer, described="GET /tickets", now=NOW)

    assert type(found) is error
    assert found.message == f"GET /tickets answered {status}"
    assert found.details == {"status": status}


async def test_the_error_names_the_request_and_the_message_in_the_body(local: Local) -> None:
    reply = json_reply({"message": "no such ticket"}, 404)
    async with http_server([reply]) as server, local(server.url) as http:
        with pytest.raises(Permanent) as raised:
            await http.get("/tickets")

    assert raised.value.message == f"GET {server.url}/tickets answered 404: no such ticket"
    assert raised.value.details == {"status": 404}


@pytest.mark.parametrize("status", [200, 201, 204, 304])
async def test_good_statuses_are_returned(local: Local, status: int) -> None:
    async with http_server([Reply(status)]) as server, local(server.url) as http:
        assert (await http.get()).status_code == status


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "120"}, 120),
        ({"retry-after": " 1.5 "}, 1.5),
        ({"retry-after": IN_90_SECONDS}, 90),
        ({"retry-after": format_datetime(NOW - timedelta(hours=1), usegmt=True)}, 0),
        ({"retry-after": "120", "x-ratelimit-reset": str(EPOCH + 9)}, 120),
        ({"retry-after-ms": "250"}, 0.25),
        ({"ratelimit-reset": "30"}, 30),
        ({"ratelimit": "limit=100, remaining=0, reset=45"}, 45),
        ({"ratelimit": '"hourly";r=0;t=50'}, 50),
        ({"x-ratelimit-reset": str(EPOCH + 300)}, 300),
        ({"x-ratelimit-reset": str((EPOCH + 300) * 1000)}, 300),
        ({"x-ratelimit-reset": "17"}, 17),
        ({"x-ratelimit-reset": "2026-01-01T12:01:00Z"}, 60),
        ({"x-rate-limit-reset": str(EPOCH + 5)}, 5),
        ({"x-ratelimit-reset-after": "0.75"}, 0.75),
        ({"x-ratelimit-reset-requests": "6m0s"}, 360),
        ({"x-ratelimit-reset-tokens": "20ms"}, 0.02),
        ({"x-ratelimit-reset-requests": "1s", "x-ratelimit-reset-tokens": "1h2m"}, 3720),
        ({"x-ratelimit-reset": str(EPOCH + 70), "date": IN_90_SECONDS}, 0),
        ({"retry-after": IN_90_SECONDS, "date": format_datetime(NOW, usegmt=True)}, 90),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "9" * 400}, None),
        ({"retry-after": "١٢"}, None),
        ({"retry-after": ""}, None),
        ({}, None),
    ],
)
def test_headers_say_how_long_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    assert wait_seconds(headers, now=NOW) == seconds


@pytest.mark.parametrize(
    ("body", "seconds"),
    [({"retry_after_ms": 1500}, 1.5), ({"retry_after": 2}, 2), ({"retry_after": True}, None)],
)
def test_the_body_says_how_long_to_wait(body: Any, seconds: float | None) -> None:
    found = error_of(Response(429, json=body), described="GET /", now=NOW)

    assert isinstance(found, RateLimited)
    assert found.retry_after_seconds == seconds


@pytest.mark.parametrize(
    "body",
    [
        {"message": "no such ticket"},
        {"error": "no such ticket"},
        {"error": {"message": "no such ticket"}},
        {"errors": [{"detail": "no such ticket"}]},
        {"error": "not_found", "error_description": "no such ticket"},
        ["no such   ticket"],
    ],
)
def test_the_message_in_the_body_is_quoted(body: Any) -> None:
    found = error_of(Response(404, json=body), described="GET /", now=NOW)

    assert str(found) == "GET / answered 404: no such ticket"


def test_an_html_page_is_not_quoted() -> None:
    page = Response(404, {"content-type": "text/html"}, b"<html>lots</html>")

    assert str(error_of(page, described="GET /", now=NOW)) == "GET / answered 404"


async def test_a_connector_may_map_failures_itself(local: Local) -> None:
    def errors(answer: Any) -> SyncError | None:
        return Unauthorized("the app was removed") if answer.status_code == 410 else None

    async with (
        http_server([Reply(410), Reply(404), Reply(404)]) as server,
        local(server.url, errors=errors) as http,
    ):
        with pytest.raises(Unauthorized, match="the app was removed"):
            await http.get()
        with pytest.raises(Permanent):
            await http.get()
        assert (await http.get(accept={404})).status_code == 404


async def test_a_refused_connection_is_transient(local: Local) -> None:
    async with http_server([]) as server:
        pass
    async with local(server.url) as http:
        with pytest.raises(Transient, match="failed: ConnectError"):
            await http.get()


async def test_an_unresolvable_name_is_transient(local: Local) -> None:
    async with local("http://nowhere.invalid") as http:
        with pytest.raises(Transient, match="cannot be resolved"):
            await http.get()


@pytest.mark.parametrize(
    "sent", [b"", b"rubbish\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc"]
)
async def test_a_broken_answer_is_transient(local: Local, sent: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(sent)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, local(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as http:
        with pytest.raises(Transient):
            await http.get()


async def test_a_body_that_drips_is_cut_off_at_the_deadline(local: Local) -> None:
    """Each byte comes in time, but the whole body does not."""
    reply = Reply(200, b"x" * 1000, drip=0.02)
    async with (
        http_server([reply]) as server,
        local(server.url, limits={"timeout_seconds": 0.2}) as http,
    ):
        with pytest.raises(Transient, match=r"did not answer within 0\.2 s"):
            await http.get()


async def test_the_deadline_holds_for_all_redirects_together(local: Local) -> None:
    reply = Reply(302, b"xxxxxxxx", {"location": "/"}, drip=0.01)
    async with (
        http_server(lambda _: reply) as server,
        local(server.url, limits={"timeout_seconds": 0.2}) as http,
    ):
        with pytest.raises(Transient, match="did not answer"):
            await http.get()

    assert 2 <= len(server.seen) <= 4
