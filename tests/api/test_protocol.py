"""What the server bears from a client, byte by byte on real sockets."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing

import pytest

from support.world import World
from syncline.api import protocol
from syncline.api.server import Listener, serving

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
LINE = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"


class Server:
    def __init__(self, listener: Listener) -> None:
        self._address = listener.socket.getsockname()[:2]
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self, sent: bytes = b"") -> Streams:
        reader, writer = await asyncio.open_connection(*self._address)
        self._writers.append(writer)
        writer.write(sent)
        return reader, writer

    async def status(self, sent: bytes) -> int:
        """Return the status of the answer to these bytes."""
        reader, _ = await self.connect(sent)
        return await status_of(reader)

    def close(self) -> None:
        for writer in self._writers:
            writer.close()


async def status_of(reader: asyncio.StreamReader) -> int:
    async with asyncio.timeout(5):
        head = await reader.readuntil(b"\r\n\r\n")
    return int(head.split(b" ", 2)[1])


async def is_closed_within(reader: asyncio.StreamReader, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            while await reader.read(65_536):
                pass
    except TimeoutError:
        return False
    except ConnectionError:
        return True
    return True


@asynccontextmanager
async def running(world: World) -> AsyncIterator[Server]:
    api = world.settings.api.model_copy(update={"port": 0})
    with closing(Listener(api)) as listener:
        async with serving(world.engine, listener, page=True):
            with closing(Server(listener)) as server:
                yield server


@pytest.fixture
async def server(world: World) -> AsyncIterator[Server]:
    async with running(world) as server:
        yield server


@pytest.mark.parametrize("size", [16_385, 64_000, 200_000])
async def test_header_bytes_are_counted_when_they_come_at_once(server: Server, size: int) -> None:
    padding = b"x" * (size - len(LINE) - len(b"X-A: \r\n\r\n"))

    assert await server.status(LINE + b"X-A: " + padding + b"\r\n\r\n") == 400


async def test_header_bytes_are_counted_when_they_come_slowly(server: Server) -> None:
    reader, writer = await server.connect(LINE + b"X-A: ")
    for _ in range(17):
        writer.write(b"x" * 1000)
        await asyncio.sleep(0.001)

    assert await status_of(reader) == 400


async def test_headers_below_the_bounds_are_served(server: Server) -> None:
    padding = b"x" * (16_384 - len(LINE) - len(b"X-A: \r\n\r\n"))

    assert await server.status(LINE + b"X-A: " + padding + b"\r\n\r\n") == 200
    assert await server.status(LINE + b"X-A: b\r\n" * 99 + b"\r\n") == 200


async def test_the_number_of_headers_is_bounded(server: Server) -> None:
    began = time.monotonic()

    assert await server.status(LINE + b"a:\r\n" * 150 + b"\r\n") == 400
    assert await server.status(LINE + b"a:\r\n" * 50_000 + b"\r\n") == 400
    assert time.monotonic() - began < 1


async def test_a_second_request_in_the_same_segment_is_counted_too(server: Server) -> None:
    reader, _ = await server.connect(LINE + b"\r\n" + LINE + b"X-A: " + b"x" * 64_000 + b"\r\n\r\n")

    assert await status_of(reader) == 200
    rest = await reader.read()
    assert b"HTTP/1.1 400" in rest
    assert b"application/problem+json" in rest


async def test_what_is_no_http_is_refused_by_a_problem_document(server: Server) -> None:
    reader, _ = await server.connect(b"\x16\x03\x01 hello\r\n\r\n")

    answer = await reader.read()

    assert answer.startswith(b"HTTP/1.1 400")
    assert b"application/problem+json" in answer


async def test_headers_that_trickle_end_the_connection(
    world: World, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "HEAD_WITHIN_SECONDS", 0.3)
    fresh, _ = await server.connect()
    slow, writer = await server.connect(b"GET /hea")

    async def trickle() -> None:
        while not writer.is_closing():
            writer.write(b"l")
            await asyncio.sleep(0.02)

    trickling = asyncio.create_task(trickle())
    assert await is_closed_within(slow, 3)
    assert await is_closed_within(fresh, 3)
    trickling.cancel()
    exposition = world.engine.telemetry.exposition().decode()
    assert 'sync_api_refused_total{reason="slow"} 2.0' in exposition


async def test_the_second_request_of_a_connection_may_not_trickle_either(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "HEAD_WITHIN_SECONDS", 0.3)
    reader, writer = await server.connect(LINE + b"\r\n")
    assert await status_of(reader) == 200

    writer.write(b"GET ")

    assert await is_closed_within(reader, 3)


async def test_a_refused_body_that_goes_on_ends_the_connection(
    world: World, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "HEAD_WITHIN_SECONDS", 0.3)
    await world.engine.access.create_key("ann")
    head = b"POST /v1/connections HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 900000\r\n\r\n"
    reader, writer = await server.connect(head)
    began = time.monotonic()
    assert await status_of(reader) == 401
    assert time.monotonic() - began < 1

    async def go_on() -> None:
        while not writer.is_closing():
            writer.write(b" ")
            await asyncio.sleep(0.02)

    going_on = asyncio.create_task(go_on())
    assert await is_closed_within(reader, 3)
    going_on.cancel()


@pytest.mark.engine(api={"max_clients_per_address": 3})
async def test_an_address_holds_only_so_many_connections(world: World) -> None:
    async with running(world) as server:
        held = [await server.connect() for _ in range(3)]
        await asyncio.sleep(0.05)
        refused, _ = await server.connect(LINE + b"\r\n")
        assert await is_closed_within(refused, 3)

        held[0][1].close()
        await asyncio.sleep(0.05)

        assert await server.status(LINE + b"\r\n") == 200
    assert 'sync_api_refused_total{reason="clients"} 1.0' in (
        world.engine.telemetry.exposition().decode()
    )


@pytest.mark.engine(api={"max_clients": 2})
async def test_the_server_holds_only_so_many_connections(world: World) -> None:
    async with running(world) as server:
        for _ in range(2):
            await server.connect()
        await asyncio.sleep(0.05)
        refused, _ = await server.connect()
        assert await is_closed_within(refused, 3)


async def test_a_client_that_reads_nothing_is_cut_off(
    world: World, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "READ_WITHIN_SECONDS", 0.3)
    _, secret = await world.engine.access.create_key("ann")
    key = f"Authorization: Bearer {secret}\r\n".encode()
    listing = b"GET /docs HTTP/1.1\r\nHost: 127.0.0.1\r\n" + key + b"\r\n"
    reader, writer = await server.connect()
    writer.transport.pause_reading()  # type: ignore[attr-defined]

    async def ask() -> None:
        while not writer.is_closing():
            writer.write(listing)
            await asyncio.sleep(0.005)

    asking = asyncio.create_task(ask())
    async with asyncio.timeout(20):
        while 'reason="slow"' not in world.engine.telemetry.exposition().decode():  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    asking.cancel()
    assert reader is not None


async def test_a_stream_of_events_outlives_the_time_for_headers(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "HEAD_WITHIN_SECONDS", 0.2)
    monkeypatch.setattr("syncline.api.dashboard.events.EVERY_SECONDS", 0.1)
    reader, _ = await server.connect(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert await status_of(reader) == 200

    began, received = time.monotonic(), b""
    async with asyncio.timeout(10):
        while received.count(b"event: tick") < 10:
            received += await reader.read(1000)

    assert time.monotonic() - began > 0.5


FORWARDED = b"GET /v1/stats HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Forwarded-For: "


@pytest.mark.parametrize(("trusted", "last"), [(["127.0.0.1"], 401), ([], 429)])
async def test_only_a_trusted_proxy_says_whose_a_request_is(
    world: World, trusted: list[str], last: int
) -> None:
    await world.engine.access.create_key("ann")
    limits = {"address_requests_per_second": 0.001, "address_burst": 2}
    api = world.settings.api.model_copy(update={"trusted_proxies": trusted, **limits})
    settings = world.engine.settings.model_copy(update={"api": api})
    world.engine.settings = settings
    async with running(world) as server:
        statuses = [
            await server.status(FORWARDED + f"1.2.3.{number}, 203.0.113.{number}\r\n\r\n".encode())
            for number in range(3)
        ]
        spoofed = [
            await server.status(FORWARDED + f"1.2.3.{number}, 203.0.113.9\r\n\r\n".encode())
            for number in range(3)
        ]

    assert statuses == [401, 401, last]
    assert spoofed[-1] == 429  # what the client itself wrote before the proxy's part counts nothing
