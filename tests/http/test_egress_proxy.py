"""The proxy of a sandbox refuses what the HTTP client refuses, and limits its connections."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.httpserver import HttpServer, Reply, Seen, http_server
from syncline import Permanent
from syncline.http import HttpClient, HttpEnvironment
from syncline.http.egress_proxy import (
    BadRequest,
    EgressProxy,
    ProxyLimits,
    parse_head,
    serve_proxy,
)

Address = tuple[str, int]


@asynccontextmanager
async def proxy(
    environment: HttpEnvironment, limits: ProxyLimits | None = None
) -> AsyncIterator[tuple[EgressProxy, Address]]:
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    async with serve_proxy(listener, environment, "tap-fake", limits) as served:
        yield served, address


async def ask(address: Address, sent: bytes) -> bytes:
    """Send bytes to the proxy; return all that comes back."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(sent)
    writer.write_eof()
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    return answer


def head(line: str, *headers: str) -> bytes:
    return "\r\n".join([line, *headers, "", ""]).encode()


async def refusal_of_the_client(environment: HttpEnvironment, url: str) -> str:
    async with HttpClient(environment, provider_slug="tap-fake", credentials=None) as client:
        with pytest.raises(Permanent) as refused:
            await client.get(url)
    return str(refused.value)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "169.254.169.254", "10.0.0.1", "[::1]", "2130706433", "0x7f.1", "localhost"],
)
async def test_private_addresses_are_refused_with_the_message_of_the_client(host: str) -> None:
    environment = HttpEnvironment()
    sentence = await refusal_of_the_client(environment, f"http://{host}:8080/")

    async with proxy(environment) as (served, address):
        connect = await ask(address, head(f"CONNECT {host}:8080 HTTP/1.1"))
        absolute = await ask(address, head(f"GET http://{host}:8080/x HTTP/1.1"))

    for answer in (connect, absolute):
        assert answer.startswith(b"HTTP/1.1 403 ")
        assert sentence.encode() in answer
    assert served.refusals == [sentence] * 2


async def test_a_name_that_is_both_public_and_not_is_refused() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["93.184.215.14", "127.0.0.1"]

    async with proxy(HttpEnvironment(resolve=resolve)) as (_, address):
        answer = await ask(address, head("CONNECT shop.example.com:443 HTTP/1.1"))

    assert b"403 shop.example.com resolves to 127.0.0.1, which is not public" in answer


async def test_a_name_is_resolved_once_and_the_checked_address_is_used() -> None:
    """The resolver would give another address the second time, but it is asked only once."""
    answers = [["127.0.0.1"], ["203.0.113.9"]]

    async def resolve(host: str, port: int) -> list[str]:
        return answers.pop(0)

    environment = HttpEnvironment(resolve=resolve, is_allowed=lambda one: one == "127.0.0.1")
    async with (
        http_server([Reply(body=b"hello")]) as server,
        proxy(environment) as (_, address),
    ):
        url = f"http://shop.example.com:{server.port}"
        answer = await ask(address, head(f"GET {url}/ HTTP/1.1"))

    assert answer.endswith(b"hello")
    assert len(answers) == 1


@pytest.mark.parametrize("port", [22, 25, 1023])
async def test_ports_of_other_services_are_refused(port: int) -> None:
    async with proxy(HttpEnvironment()) as (_, address):
        answer = await ask(address, head(f"CONNECT example.com:{port} HTTP/1.1"))

    assert answer.startswith(f"HTTP/1.1 403 port {port} of example.com is refused; use".encode())


async def test_a_request_in_absolute_form_is_forwarded() -> None:
    async with open_server() as server, proxy(HttpEnvironment(allow_private=True)) as (_, address):
        headers = ("Host: elsewhere", "Proxy-Authorization: Basic x", "Accept: a/b")
        sent = head(f"POST {server.url}/a?b=c HTTP/1.1", *headers, "Content-Length: 4") + b"body"
        answer = await ask(address, sent)

    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b"hello")
    [seen] = server.seen
    assert (seen.method, seen.target, seen.body) == ("POST", "/a?b=c", b"body")
    assert seen.headers["host"] == f"127.0.0.1:{server.port}"
    assert seen.headers["accept"] == "a/b"
    assert "proxy-authorization" not in seen.headers


async def test_a_tunnel_passes_bytes_both_ways() -> None:
    async with open_server() as server, proxy(HttpEnvironment(allow_private=True)) as (_, address):
        reader, writer = await asyncio.open_connection(*address)
        writer.write(head(f"CONNECT 127.0.0.1:{server.port} HTTP/1.1"))
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 200 Connection established\r\n\r\n"
        for _ in range(2):
            writer.write(head("GET /inner HTTP/1.1", "Host: inner"))
            assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200")
        writer.close()

    assert [seen.headers["host"] for seen in server.seen] == ["inner", "inner"]


@pytest.mark.parametrize(
    "sent",
    [
        b"hello\r\n\r\n",
        b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET https://example.com/ HTTP/1.1\r\n\r\n",
        b"GET ftp://example.com/ HTTP/1.1\r\n\r\n",
        b"GET http://exa\xff.com/ HTTP/1.1\r\n\r\n",
        b"CONNECT [::1 HTTP/1.1\r\n\r\n",
        b"CONNECT example.com:99999999 HTTP/1.1\r\n\r\n",
        b"CONNECT  HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"G(T http://example.com/ HTTP/1.1\r\n\r\n",
        b"GET http://example.com/ HTTP/1.1\r\nX: " + b"x" * 40_000 + b"\r\n\r\n",
    ],
    ids=lambda sent: repr(sent[:30]),
)
async def test_an_invalid_request_is_answered_and_closed(sent: bytes) -> None:
    async with proxy(HttpEnvironment()) as (_, address):
        answer = await ask(address, sent)

    assert answer[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 403")


LIKELY_HEADS = st.from_regex(rb"[A-Z]{1,8} [ -~]{0,60} HTTP/1\.[01]", fullmatch=True)


@given(st.binary(max_size=300) | LIKELY_HEADS)
def test_any_head_is_parsed_or_refused(head: bytes) -> None:
    """Every head is a request or a `BadRequest`."""
    with suppress(BadRequest):
        request = parse_head(head + b"\r\n\r\n")
        assert request.url.scheme in ("http", "https")
        assert request.head == b"" or request.head.endswith(b"\r\n\r\n")


async def test_an_unresolvable_name_is_not_a_refusal() -> None:
    async with proxy(HttpEnvironment()) as (served, address):
        answer = await ask(address, head("CONNECT nowhere.invalid:443 HTTP/1.1"))

    assert answer.startswith(b"HTTP/1.1 502 nowhere.invalid cannot be resolved")
    assert served.refusals == []


async def test_connections_are_counted_and_idle_ones_closed() -> None:
    limits = ProxyLimits(connections=2, head_seconds=0.3, idle_seconds=0.3)
    async with (
        open_server() as server,
        proxy(HttpEnvironment(allow_private=True), limits) as (_, address),
    ):
        silent, tunnel = [await asyncio.open_connection(*address) for _ in range(2)]
        tunnel[1].write(head(f"CONNECT 127.0.0.1:{server.port} HTTP/1.1"))
        await tunnel[0].readuntil(b"\r\n\r\n")

        assert (await ask(address, b"")).startswith(b"HTTP/1.1 503 more than 2 connections")

        async with asyncio.timeout(5):
            assert await silent[0].read() == b""  # it sent no head
            assert await tunnel[0].read() == b""  # it sent one, and then nothing
        for _, writer in (silent, tunnel):
            writer.close()
        assert (await ask(address, head(f"GET {server.url}/ HTTP/1.1"))).endswith(b"hello")


async def test_connections_end_with_the_proxy() -> None:
    async with open_server() as server:
        async with proxy(HttpEnvironment(allow_private=True)) as (_, address):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(head(f"CONNECT 127.0.0.1:{server.port} HTTP/1.1"))
            await reader.readuntil(b"\r\n\r\n")

        async with asyncio.timeout(5):
            assert await reader.read() == b""
        writer.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*address)


@asynccontextmanager
async def open_server() -> AsyncIterator[HttpServer]:
    def answer(seen: Seen) -> Reply:
        return Reply(body=b"hello")

    async with http_server(answer) as server:
        yield server
