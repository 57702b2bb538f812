"""The HTTP proxy of sandboxed programs: their only way out, under the rules of our own client.

It serves CONNECT and requests in absolute form. It resolves each name once, requires every address
to be allowed, and connects to a checked address. After the head of a request it passes bytes in
both directions, unread.
"""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from syncline.errors import Permanent, SyncError, Transient
from syncline.http.addresses import check_url, port_of
from syncline.http.environment import HttpEnvironment
from syncline.http.resolution import checked_addresses
from syncline.http.url import InvalidUrl, Url

LOG = logging.getLogger("syncline.http.egress")
CHUNK_BYTES = 64 * 1024
ANSWER_SECONDS = 5.0
MAX_REFUSALS = 20  # kept and logged
# Headers of this hop alone, and Host: the proxy writes its own.
OWN_HEADERS = {b"connection", b"proxy-connection", b"proxy-authorization", b"keep-alive", b"host"}

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True, slots=True)
class ProxyLimits:
    """The limits of one program's proxy."""

    connections: int = 64
    head_bytes: int = 32 * 1024
    head_seconds: float = 15.0
    idle_seconds: float = 300.0


class BadRequest(Exception):
    """The client sent something that is not a proxy request."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request's URL, and the head to send to the server."""

    url: Url
    head: bytes  # empty for CONNECT


@dataclass(slots=True, eq=False)
class EgressProxy:
    """The proxy of one program."""

    environment: HttpEnvironment
    name: str
    limits: ProxyLimits = ProxyLimits()
    refusals: list[str] = field(default_factory=list)
    _open: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to its end."""
        self._open += 1
        try:
            if self._open > self.limits.connections:
                await _answer(writer, 503, f"more than {self.limits.connections} connections")
            else:
                await self._serve((reader, writer))
        except (OSError, EOFError):
            pass  # one side closed, or was idle for too long
        finally:
            self._open -= 1
            await _close(writer)

    async def _serve(self, client: Streams) -> None:
        try:
            async with asyncio.timeout(self.limits.head_seconds):
                request = parse_head(await client[0].readuntil(b"\r\n\r\n"))
            server = await self._connect(request.url)
        except (BadRequest, asyncio.LimitOverrunError) as error:
            reason = str(error) if isinstance(error, BadRequest) else "the head is too large"
            await _answer(client[1], 400, reason)
            return
        except SyncError as error:
            await self._refuse(client[1], error)
            return
        try:
            if request.head:
                server[1].write(request.head)
            else:
                client[1].write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await _relay(client, server, self.limits.idle_seconds)
        finally:
            await _close(server[1])

    async def _connect(self, url: Url) -> Streams:
        """Connect to a checked address of the URL's host."""
        check_url(url, allow_private=self.environment.allow_private)
        limits, host, port = self.environment.limits, url.host, port_of(url)
        failure = f"{host} has no address"
        for address in await checked_addresses(self.environment, host, port):
            try:
                async with asyncio.timeout(limits.connect_timeout_seconds):
                    return await asyncio.open_connection(address, port, limit=CHUNK_BYTES)
            except OSError as error:
                failure = f"{host} cannot be reached: {error or 'no answer'}"
        raise Transient(failure)

    async def _refuse(self, writer: asyncio.StreamWriter, error: SyncError) -> None:
        is_refused = isinstance(error, Permanent)
        if is_refused and len(self.refusals) < MAX_REFUSALS:
            self.refusals.append(str(error))
            LOG.warning("%s: %s", self.name, error)
        await _answer(writer, 403 if is_refused else 502, str(error))


@asynccontextmanager
async def serve_proxy(
    listener: socket.socket,
    environment: HttpEnvironment,
    name: str,
    limits: ProxyLimits | None = None,
) -> AsyncIterator[EgressProxy]:
    """Yield a proxy that listens on a socket; its connections end with the block."""
    proxy = EgressProxy(environment, name, limits or ProxyLimits())
    served: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(proxy.serve(reader, writer))
        served.add(task)
        task.add_done_callback(served.discard)

    server = await asyncio.start_server(accept, sock=listener, limit=proxy.limits.head_bytes)
    try:
        yield proxy
    finally:
        server.close()
        for task in served:
            task.cancel()
        await asyncio.gather(*served, return_exceptions=True)


def parse_head(head: bytes) -> Request:
    """Return the URL of a request, and its head in the form that the server expects."""
    start, *lines = head[:-4].split(b"\r\n")
    match start.split(b" "):
        case [b"CONNECT", target, b"HTTP/1.1" | b"HTTP/1.0"]:
            return Request(_parse_url(b"https://" + target), b"")
        case [method, target, b"HTTP/1.1" | b"HTTP/1.0"] if method.isalpha():
            url = _parse_url(target)
        case _:
            raise BadRequest("the first line is not a proxy request")
    if url.scheme != "http":
        raise BadRequest("only http works in absolute form; use CONNECT for https")
    kept = [line for line in lines if line.partition(b":")[0].strip().lower() not in OWN_HEADERS]
    own = [b"Host: " + url.netloc.encode(), b"Connection: close"]
    first = b" ".join((method, url.target.encode(), b"HTTP/1.1"))
    return Request(url, b"\r\n".join((first, *own, *kept, b"", b"")))


def _parse_url(target: bytes) -> Url:
    try:
        return Url(target.decode("ascii"))
    except (InvalidUrl, UnicodeDecodeError):
        raise BadRequest("the URL cannot be parsed") from None


async def _relay(client: Streams, server: Streams, idle_seconds: float) -> None:
    """Pass bytes both ways until the server closes, or both sides are idle for too long."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(idle_seconds) as patience:

        async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while chunk := await reader.read(CHUNK_BYTES):
                    patience.reschedule(loop.time() + idle_seconds)
                    writer.write(chunk)
                    await writer.drain()
                writer.write_eof()
            except OSError:
                writer.transport.abort()  # one side closed, so close the other too

        sending = asyncio.create_task(pump(client[0], server[1]))
        try:
            await pump(server[0], client[1])
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)


async def _answer(writer: asyncio.StreamWriter, status: int, reason: str) -> None:
    """Send an error; most programs show only the status line, so it has the reason too."""
    line = "".join(sign if sign.isprintable() else " " for sign in reason)
    body = f"{line}\n".encode()
    head = (
        f"HTTP/1.1 {status} {line}\r\n"
        f"Content-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    with suppress(OSError):
        async with asyncio.timeout(ANSWER_SECONDS):
            writer.write(head.encode("latin-1", "replace") + body)
            await writer.drain()


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        async with asyncio.timeout(1):
            await writer.wait_closed()
