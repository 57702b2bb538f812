"""What the server accepts from a client, byte by byte, on real sockets."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing

import pytest

from support.fakes import eventually
from support.world import World
from syncline.api.server import Listener, serving
from syncline.api.timeouts import DEFAULT_TIMEOUTS, Timeouts

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
LINE = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"
IMPATIENT = Timeouts(head_seconds=0.1, read_seconds=0.1)


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
async def running(world: World, timeouts: Timeouts = DEFAULT_TIMEOUTS) -> AsyncIterator[Server]:
    api = world.settings.api.model_copy(update={"port": 0})
    with closing(Listener(api)) as listener:
        async with serving(world.engine, listener, page=True, timeouts=timeouts):
            with closing(Server(listener)) as server:
                yield server


@pytest.fixture
async def server(world: World) -> AsyncIterator[Server]:
    async with running(world) as server:
        yield server


@pytest.fixture
async def impatient(world: World) -> AsyncIterator[Server]:
    """A server that waits only briefly for its clients."""
    async with running(world, IMPATIENT) as server:
        yield server


async def test_header_bytes_are_counted_when_they_come_at_once(server: Server) -> None:
    for size in (16_385, 200_000):
        padding = b"x" * (size - len(LINE) - len(b"X-A: \r\n\r\n"))

        assert await server.status(LINE + b"X-A: " + padding + b"\r\n\r\n") == 400


async def test_header_bytes_are_counted_when_they_come_slowly(server: Server) -> None:
    reader, writer = await server.connect(LINE + b"X-A: ")
    for _ in range(17):
        writer.write(b"x" * 1000)
        await writer.drain()
        await asyncio.sleep(0)  # the server shares the loop, and reads this piece before the next

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


async def test_what_is_not_http_gets_a_problem_document(server: Server) -> None:
    reader, _ = await server.connect(b"\x16\x03\x01 hello\r\n\r\n")

    answer = await reader.read()

    assert answer.startswith(b"HTTP/1.1 400")
    assert b"application/problem+json" in answer


async def test_headers_that_trickle_end_the_connection(world: World, impatient: Server) -> None:
    fresh, _ = await impatient.connect()
    slow, writer = await impatient.connect(b"GET /hea")

    async def trickle() -> None:
        while not writer.is_closing():
            writer.write(b"l")
            await asyncio.sleep(0.02)  # a slow client

    trickling = asyncio.create_task(trickle())
    assert await is_closed_within(slow, 3)
    assert await is_closed_within(fresh, 3)
    trickling.cancel()
    assert refusals(world, "slow") == 2


async def test_the_second_request_of_a_connection_may_not_trickle_either(
    impatient: Server,
) -> None:
    reader, writer = await impatient.connect(LINE + b"\r\n")
    assert await status_of(reader) == 200

    writer.write(b"GET ")

    assert await is_closed_within(reader, 3)


async def test_a_refused_body_that_goes_on_ends_the_connection(
    world: World, impatient: Server
) -> None:
    await world.engine.access.create_key("ann")
    head = b"POST /v1/connections HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 900000\r\n\r\n"
    reader, writer = await impatient.connect(head)
    began = time.monotonic()
    assert await status_of(reader) == 401
    assert time.monotonic() - began < 1

    async def go_on() -> None:
        while not writer.is_closing():
            writer.write(b" ")
            await asyncio.sleep(0.02)  # a slow client

    going_on = asyncio.create_task(go_on())
    assert await is_closed_within(reader, 3)
    going_on.cancel()


@pytest.mark.engine(api={"max_clients_per_address": 3})
async def test_an_address_holds_only_so_many_connections(world: World) -> None:
    async with running(world) as server:
        held = [await server.connect() for _ in range(3)]
        refused, _ = await server.connect(LINE + b"\r\n")
        assert await is_closed_within(refused, 3)
        assert refusals(world, "clients") == 1

        held[0][1].close()
        await held[0][1].wait_closed()

        await eventually(lambda: is_served(server))


@pytest.mark.engine(api={"max_clients": 2})
async def test_the_server_holds_only_so_many_connections(world: World) -> None:
    async with running(world) as server:
        for _ in range(2):
            await server.connect()
        refused, _ = await server.connect()
        assert await is_closed_within(refused, 3)
    assert refusals(world, "clients") == 1


def refusals(world: World, reason: str) -> float | None:
    return world.metric("sync_api_refused_total", reason=reason)


async def is_served(server: Server) -> bool:
    try:
        return await server.status(LINE + b"\r\n") == 200
    except (asyncio.IncompleteReadError, ConnectionError):
        return False


async def test_a_client_that_reads_nothing_is_cut_off(world: World, impatient: Server) -> None:
    _, secret = await world.engine.access.create_key("ann")
    key = f"Authorization: Bearer {secret}\r\n".encode()
    listing = b"GET /docs HTTP/1.1\r\nHost: 127.0.0.1\r\n" + key + b"\r\n"
    _, writer = await impatient.connect()
    writer.transport.pause_reading()  # type: ignore[attr-defined]

    async def ask() -> None:
        while not writer.is_closing():
            writer.write(listing)
            await asyncio.sleep(0.005)  # or the requests would not be parsed while they come

    asking = asyncio.create_task(ask())
    async with asyncio.timeout(20):
        await eventually(lambda: refusals(world, "slow") == 1)
    asking.cancel()


async def test_a_stream_outlives_the_time_for_headers(world: World) -> None:
    async with running(world, IMPATIENT) as server:
        asked = b"GET /v1/signals/tail?position=now HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        stream, writer = await server.connect(asked)
        assert await status_of(stream) == 200
        younger, _ = await server.connect()
        assert await is_closed_within(younger, 3)

        assert refusals(world, "slow") == 1  # the younger one alone
        assert b"position" in await stream.read(1000)
        writer.close()


FORWARDED = b"GET /v1/stats HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Forwarded-For: "


@pytest.mark.parametrize(("trusted", "last"), [(["127.0.0.1"], 401), ([], 429)])
async def test_only_a_trusted_proxy_may_name_the_sender(
    world: World, trusted: list[str], last: int
) -> None:
    await world.engine.access.create_key("ann")
    limits = {"address_requests_per_second": 0.001, "address_burst": 2}
    async with (
        world.another_engine(api={"trusted_proxies": trusted, **limits}) as behind_proxy,
        running(behind_proxy) as server,
    ):
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
