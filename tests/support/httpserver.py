"""A real HTTP server on loopback whose responses a test scripts, byte by byte if needed."""

import asyncio
import json
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True)
class Seen:
    """A request as it came over the wire."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.target).query, keep_blank_values=True))


@dataclass
class Reply:
    """A response; with `drip` it is sent byte by byte, with this many seconds between."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    drip: float | None = None
    announces_length: bool = True


def json_reply(value: Any, status: int = 200, **headers: str) -> Reply:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Reply(status, json.dumps(value).encode(), {"content-type": "application/json", **named})


Answer = Callable[[Seen], Reply | Awaitable[Reply]]


class HttpServer:
    def __init__(self, answer: Answer | Sequence[Reply]) -> None:
        self._answer = answer
        self._left = [] if callable(answer) else list(answer)
        self.seen: list[Seen] = []
        self.accepted = 0  # connections
        self.port = 0
        self.scheme = "http"
        self._open: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    @property
    def is_connected(self) -> bool:
        return bool(self._open)

    async def left(self) -> None:
        """Wait until every client has closed its connections."""
        await asyncio.gather(*self._serving, return_exceptions=True)

    def reply(self, seen: Seen) -> Reply | Awaitable[Reply]:
        return self._answer(seen) if callable(self._answer) else self._left.pop(0)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        self.accepted += 1
        self._open.add(writer)
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while (seen := await _read(reader)) is not None:
                self.seen.append(seen)
                reply = self.reply(seen)
                await _write(writer, await reply if isinstance(reply, Awaitable) else reply)
        self._open.discard(writer)
        writer.close()

    async def hang_up(self) -> None:
        """Break off every connection, and wait until nothing serves them."""
        for writer in list(self._open):
            writer.transport.abort()
        await asyncio.gather(*self._serving, return_exceptions=True)


@asynccontextmanager
async def http_server(
    answer: Answer | Sequence[Reply], *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[HttpServer]:
    """Yield a server on a free port of a loopback address."""
    served = HttpServer(answer)
    server = await asyncio.start_server(served.serve, host, 0, ssl=tls)
    served.port = server.sockets[0].getsockname()[1]
    served.scheme = "https" if tls else "http"
    try:
        yield served
    finally:
        server.close()
        await served.hang_up()
        await server.wait_closed()


@contextmanager
def threaded_server(answer: Answer) -> Iterator[HttpServer]:
    """Yield a server in a thread of its own, for tests that block or have no event loop."""
    started, lent = threading.Event(), []

    async def serve() -> None:
        stopped = asyncio.Event()
        async with http_server(answer) as server:
            lent.append((server, asyncio.get_running_loop(), stopped))
            started.set()
            await stopped.wait()
            await asyncio.sleep(0.01)  # for connections that a client has opened and left
        for _ in range(5):  # so that what was closed is gone before its loop
            await asyncio.sleep(0)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    started.wait(10)
    server, loop, stopped = lent[0]
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stopped.set)
        thread.join(10)


async def _read(reader: asyncio.StreamReader) -> Seen | None:
    line = await reader.readline()
    if not line:
        return None
    method, target, _ = line.decode().split()
    headers: dict[str, str] = {}
    while (header := (await reader.readline()).decode().strip()) != "":
        name, _, value = header.partition(":")
        headers[name.lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Seen(method, target, headers, body)


async def _write(writer: asyncio.StreamWriter, reply: Reply) -> None:
    headers = dict(reply.headers)
    if reply.announces_length:
        headers.setdefault("content-length", str(len(reply.body)))
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    writer.write(f"HTTP/1.1 {reply.status} X\r\n{head}\r\n".encode())
    if reply.drip is None:
        writer.write(reply.body)
    else:
        for byte in reply.body:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(reply.drip)
    await writer.drain()
    if not reply.announces_length:
        writer.close()
