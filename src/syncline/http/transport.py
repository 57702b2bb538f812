"""The transport that opens sockets: it resolves a name once, checks the addresses, and connects.

The check happens where the socket is opened, so that nothing can come between check and use: no
second DNS response, no redirect, no proxy from the environment. TLS still verifies the requested
name, and `Host` still carries it.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

import httpcore2
import httpx2
from httpcore2 import SOCKET_OPTION, AsyncNetworkBackend, AsyncNetworkStream

from syncline.errors import Transient
from syncline.http.addresses import not_public
from syncline.http.environment import HttpEnvironment

MAX_CONNECTIONS = 20
WIRE_LOGGERS = ("httpcore2.connection", "httpcore2.http11", "httpcore2.http2")
_is_our_request: ContextVar[bool] = ContextVar("syncline_http_request", default=False)


def open_transport(environment: HttpEnvironment) -> httpx2.AsyncBaseTransport:
    """Return the transport of one client, inside the wrapper of the environment if it has one."""
    inner = SocketTransport(environment)
    return environment.wrap_transport(inner) if environment.wrap_transport else inner


class SocketTransport(httpx2.AsyncBaseTransport):
    """Sends requests over connections to checked addresses only."""

    def __init__(self, environment: HttpEnvironment) -> None:
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=environment.ssl_context or default_ssl_context(),
            max_connections=MAX_CONNECTIONS,
            keepalive_expiry=5,
            network_backend=CheckedBackend(environment),
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url = httpcore2.URL(
            scheme=request.url.raw_scheme,
            host=request.url.raw_host,
            port=request.url.port,
            target=request.url.raw_path,
        )
        response = await self._pool.handle_async_request(
            httpcore2.Request(
                method=request.method,
                url=url,
                headers=request.headers.raw,
                content=request.stream,
                extensions=request.extensions,
            )
        )
        return httpx2.Response(response.status, headers=response.headers, stream=_Body(response))

    async def aclose(self) -> None:
        await self._pool.aclose()


class _Body(httpx2.AsyncByteStream):
    def __init__(self, response: httpcore2.Response) -> None:
        self._answer = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._answer.aiter_stream():
            yield part

    async def aclose(self) -> None:
        await self._answer.aclose()


class CheckedBackend(AsyncNetworkBackend):
    """Connects to checked addresses, never to a name."""

    def __init__(self, environment: HttpEnvironment) -> None:
        self._environment = environment
        self._sockets = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> AsyncNetworkStream:
        failure: Exception = Transient(f"{host} has no address")
        for address in await checked_addresses(self._environment, host, port):
            try:
                return await self._sockets.connect_tcp(
                    address, port, timeout, local_address, socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure

    async def sleep(self, seconds: float) -> None:
        await self._sockets.sleep(seconds)


async def checked_addresses(environment: HttpEnvironment, host: str, port: int) -> list[str]:
    """Resolve a name once and return its addresses; raise `Permanent` if any is not allowed."""
    addresses = await (environment.resolve or resolve)(host, port)
    for address in addresses:
        # One private address refuses them all: a name with both kinds is an attack.
        if not environment.allow_private and not environment.is_allowed(address):
            raise not_public(host, address)
    return addresses


async def resolve(host: str, port: int) -> list[str]:
    """Resolve with the system's resolver, which also reads decimal, octal and short forms."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Transient(f"{host} cannot be resolved: {error}") from None
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


@cache
def default_ssl_context() -> ssl.SSLContext:
    """Return the context that all clients share; loading the certificates takes 20 ms."""
    return httpx2.create_ssl_context(trust_env=False)


@contextmanager
def without_wire_log() -> Iterator[None]:
    """Keep the requests of this block out of httpcore's debug log, which shows headers.

    Other users of the library in this process are logged as before.
    """
    _filter_wire_loggers()
    token = _is_our_request.set(True)
    try:
        yield
    finally:
        _is_our_request.reset(token)


@cache
def _filter_wire_loggers() -> None:
    for name in WIRE_LOGGERS:
        logging.getLogger(name).addFilter(lambda _record: not _is_our_request.get())
