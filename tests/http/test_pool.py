"""Connections that outlive a run: shared, without state, and never a way around a permission."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from support.httpserver import Reply, Seen, http_server
from support.world import World
from syncline import Connection, Connector, Permanent, SyncResult, Transient
from syncline.http import HttpClient, HttpEnvironment, HttpLimits
from syncline.http.pool import ConnectionPool
from syncline.http.transport import open_session

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]


@pytest.fixture
async def pool() -> AsyncIterator[ConnectionPool]:
    shared = ConnectionPool()
    shared.open()
    yield shared
    await shared.close()


def environment(pool: ConnectionPool, **options: Any) -> HttpEnvironment:
    return HttpEnvironment(**{"allow_private": True, "pool": pool, **options})


async def raw_server(answer: Answer) -> tuple[asyncio.Server, str]:
    """Start a server whose bytes the test writes, and return its URL."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await answer(reader, writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    return server, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_clients_share_a_connection_but_no_state(pool: ConnectionPool) -> None:
    reply = Reply(200, b"ok", {"set-cookie": "session=of-acme; Path=/"})
    async with http_server(lambda _: reply) as server:
        for token in ("of-acme", "of-bolt"):
            own = environment(pool)
            async with HttpClient(own, base_url=server.url, credentials={"token": token}) as http:
                await http.get("/a")
        async with HttpClient(environment(pool), base_url=server.url) as http:
            await http.get("/b")

    assert server.accepted == 1
    sent = [seen.headers.get("authorization") for seen in server.seen]
    assert sent == ["Bearer of-acme", "Bearer of-bolt", None]
    assert all("cookie" not in seen.headers for seen in server.seen)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1", "2130706433", "0"])
async def test_a_permission_does_not_extend_to_others(pool: ConnectionPool, host: str) -> None:
    """The connection is open, the address is in the cache, and it is still refused."""
    async with http_server(lambda _: Reply()) as server:
        url = f"http://{host}:{server.port}/"
        async with HttpClient(environment(pool)) as http:
            await http.get(url)
        async with HttpClient(environment(pool, allow_private=False)) as http:
            with pytest.raises(Permanent, match="not public"):
                await http.get(url)

    assert len(server.seen) == 1


async def test_no_socket_is_opened_to_a_private_address() -> None:
    """Not even if the library is called without our own check before."""
    async with http_server(lambda _: Reply()) as server, open_session(HttpEnvironment()) as session:
        with pytest.raises(Permanent, match="not public"):
            await session.get(server.url)

    assert server.accepted == 0


async def test_a_connection_that_the_server_closed_does_not_fail_a_get(
    pool: ConnectionPool,
) -> None:
    """The server answers once on each connection, and closes it when it is asked again."""
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        asked.append(await reader.readuntil(b"\r\n\r\n"))

    server, url = await raw_server(answer)
    async with server, HttpClient(environment(pool), base_url=url) as http:
        await http.get("/1")
        assert (await http.get("/2")).text == "ok"
        with pytest.raises(Transient):
            await http.post("/3")

    lines = [head.split(b" HTTP")[0] for head in asked]
    assert lines == [b"GET /1", b"GET /2", b"GET /2", b"POST /3"]


@pytest.mark.parametrize("rest", ["more", ""])
async def test_a_body_that_is_not_read_takes_its_connection_along(
    pool: ConnectionPool, rest: str
) -> None:
    forged = f"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nforged{rest}".encode()

    def reply(seen: Seen) -> Reply:
        if seen.path == "/large":
            return Reply(200, b"x" * 1001 + forged, {"content-length": "1001"})
        return Reply(200, b"right")

    async with http_server(reply) as server:
        async with HttpClient(environment(pool), base_url=server.url) as http:
            with pytest.raises((Permanent, Transient)):
                await http.get("/large", max_bytes=1000)
        async with HttpClient(environment(pool), base_url=server.url) as http:
            assert (await http.get("/next")).text == "right"


@pytest.mark.parametrize("delay", [0, 0.05])
async def test_an_answer_that_nobody_asked_for_is_not_given_to_the_next(
    pool: ConnectionPool, delay: float
) -> None:
    """A server that sends two responses at once, or one more while the connection is idle."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = (await reader.readuntil(b"\r\n\r\n")).split()[1]
        if first == b"/victim":
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nright")
            return
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        await writer.drain()
        await asyncio.sleep(delay)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nforged")
        await writer.drain()
        await reader.read()

    server, url = await raw_server(answer)
    async with server:
        async with HttpClient(environment(pool), base_url=url) as http:
            assert (await http.get("/attacker")).text == "ok"
        await asyncio.sleep(2 * delay)
        async with HttpClient(environment(pool), base_url=url) as http:
            assert (await http.get("/victim")).text == "right"


@pytest.mark.parametrize(
    "name", ["Content-Length", "transfer-encoding", "Connection", "Upgrade", "Expect"]
)
async def test_headers_that_frame_a_request_are_refused(pool: ConnectionPool, name: str) -> None:
    """With a wrong length, the server would take the next tenant's request for a body."""
    async with http_server([]) as server:
        given = {name: "100"}
        for configured, asked in ((given, None), (None, given)):
            own = environment(pool)
            async with HttpClient(own, base_url=server.url, headers=configured) as http:
                with pytest.raises(Permanent, match="belongs to the connection"):
                    await http.get(headers=asked)

    assert server.accepted == 0


@pytest.mark.parametrize(
    "headers",
    [{"x-a": "b\r\nx-c: d"}, {"x-a": "b\nc"}, {"x-a\r\nx-c": "d"}, {"x-a": "b\0"}, {"x a": "b"},
     {"x-a": "ü"}, {"": "b"}],
)  # fmt: skip
async def test_no_header_smuggles_another(pool: ConnectionPool, headers: dict[str, str]) -> None:
    async with (
        http_server([]) as server,
        HttpClient(environment(pool), base_url=server.url) as http,
    ):
        with pytest.raises(Permanent, match="characters that a header cannot carry"):
            await http.get(headers=headers)

    assert server.accepted == 0


@pytest.mark.parametrize("path", ["/a\r\nx: y", "/a b\nc", "/\x00"])
async def test_no_url_smuggles_a_header(pool: ConnectionPool, path: str) -> None:
    async with (
        http_server([]) as server,
        HttpClient(environment(pool), base_url=server.url) as http,
    ):
        with pytest.raises(Permanent, match="cannot be parsed"):
            await http.get(path)

    assert server.accepted == 0


async def test_requests_wait_for_a_free_connection(pool: ConnectionPool) -> None:
    reply = Reply(200, b"abc", drip=0.01)
    limits = HttpLimits(connections_per_origin=2)
    async with (
        http_server(lambda _: reply) as server,
        HttpClient(environment(pool, limits=limits), base_url=server.url) as http,
    ):
        await asyncio.gather(*(http.get() for _ in range(6)))

    assert (server.accepted, len(server.seen)) == (2, 6)


async def test_waiting_for_a_connection_counts_for_the_deadline(pool: ConnectionPool) -> None:
    limits = HttpLimits(connections_per_origin=1)
    asked = asyncio.Event()

    def slowly(_: Seen) -> Reply:
        asked.set()
        return Reply(200, b"x" * 1000, drip=0.01)

    async with (
        http_server(slowly) as server,
        HttpClient(environment(pool, limits=limits), base_url=server.url) as http,
    ):
        slow = asyncio.create_task(http.get())
        await asked.wait()
        with pytest.raises(Transient, match=r"did not answer within 0\.1 s"):
            await http.get(timeout_seconds=0.1)
        slow.cancel()
        await asyncio.gather(slow, return_exceptions=True)


@pytest.mark.parametrize(
    "head",
    [
        b"x-long: " + b"a" * 200_000,
        b"\r\n".join(b"x-%d: y" % number for number in range(1000)),
        b"content-length: 5\r\ncontent-length: 6",
        b"content-length: -1",
        b"x-bad\0: y",
    ],
    ids=["long", "many", "two lengths", "negative length", "control character"],
)
async def test_hostile_heads_are_refused(pool: ConnectionPool, head: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\nhello")
        await writer.drain()

    server, url = await raw_server(answer)
    async with (
        server,
        HttpClient(environment(pool), base_url=url, credentials={"token": "canary"}) as http,
    ):
        with pytest.raises(Transient) as raised:
            await http.get("/", params={"key": "canary"})

    assert "canary" not in str(raised.value)
    assert len(str(raised.value)) <= 1000


@pytest.mark.parametrize("length", [b"", b"content-length: 5\r\n"])
async def test_chunks_are_counted_whatever_the_head_says(
    pool: ConnectionPool, length: bytes
) -> None:
    written = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n" + length + b"transfer-encoding: chunked\r\n\r\n")
        try:
            for _ in range(1000):
                writer.write(b"10000\r\n" + b"x" * 65_536 + b"\r\n")
                await writer.drain()
                written += 65_536
        except ConnectionError:
            pass

    server, url = await raw_server(answer)
    async with server, HttpClient(environment(pool), base_url=url) as http:
        with pytest.raises((Permanent, Transient)):
            await http.get(max_bytes=100_000)

    assert written < 20_000_000  # what the kernel's buffers hold


async def test_no_log_has_a_secret(pool: ConnectionPool, caplog: pytest.LogCaptureFixture) -> None:
    asyncio.get_running_loop().set_debug(True)
    caplog.set_level(logging.DEBUG)
    async with http_server([Reply(), Reply(500)]) as server:
        secrets = {"token": "canary-1", "query": {"key": "canary-2"}}
        async with HttpClient(environment(pool), base_url=server.url, credentials=secrets) as http:
            await http.get()
            with pytest.raises(Transient):
                await http.post(json={"secret": "canary-3"})

    assert "canary" not in caplog.text


class Desk(Connector):
    provider = "desk"

    async def sync(self, connection: Connection, cursor: Any) -> SyncResult:
        async with self.http(connection, base_url=connection.config["url"]) as http:
            await http.get()
        return SyncResult()


async def test_the_runs_of_an_engine_share_connections_until_it_stops(world: World) -> None:
    async with http_server(lambda _: Reply()) as server:
        async with world.another_engine([Desk()], http={"allow_private": ["desk"]}) as own:
            for tenant in ("acme", "bolt", "crux"):
                connection = await own.engine.connections.create(
                    tenant_id=tenant,
                    provider_slug="desk",
                    external_id="1",
                    config={"url": server.url},
                )
                await own.engine.trigger(connection.id)
                await own.engine.run_due()
            assert (server.accepted, len(server.seen)) == (1, 3)
            assert server.is_connected
        async with asyncio.timeout(5):
            await server.left()
