"""The transport that opens sockets: it resolves a name once, checks what came, and goes there.

The check stands where the socket is opened, so that nothing can come between it and the use: not
a second answer of the resolver, not a redirect, not a proxy from the environment. TLS still
verifies the name that was asked for, and `Host` still carries it.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Iterable
from functools import cache

import httpcore2
import httpx2
from httpcore2 import SOCKET_OPTION, AsyncNetworkBackend, AsyncNetworkStream

from syncline.errors import Transient
from syncline.http.addresses import refusal
from syncline.http.environment import HttpEnvironment

MAX_CONNECTIONS = 20


def open_transport(environment: HttpEnvironment) -> httpx2.AsyncBaseTransport:
    """Return the transport of one client, inside whatever a tool wrapped around it."""
    inner = SocketTransport(environment)
    return environment.wrap_transport(inner) if environment.wrap_transport else inner


class SocketTransport(httpx2.AsyncBaseTransport):
    """Sends requests over connections that only lead to addresses that were checked."""

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
        answer = await self._pool.handle_async_request(
            httpcore2.Request(
                method=request.method,
                url=url,
                headers=request.headers.raw,
                content=request.stream,
                extensions=request.extensions,
            )
        )
        return httpx2.Response(answer.status, headers=answer.headers, stream=_Body(answer))

    async def aclose(self) -> None:
        await self._pool.aclose()


class _Body(httpx2.AsyncByteStream):
    def __init__(self, answer: httpcore2.Response) -> None:
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._answer.aiter_stream():
            yield part

    async def aclose(self) -> None:
        await self._answer.aclose()


class CheckedBackend(AsyncNetworkBackend):
    """Connects to the address that was checked, never to a name."""

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
    """Resolve a name once; return where it leads to, or refuse it."""
    addresses = await (environment.resolve or resolve)(host, port)
    for address in addresses:
        # One that is not public refuses them all: a name that is both is a trap.
        if not environment.allow_private and not environment.is_allowed(address):
            raise refusal(host, address)
    return addresses


async def resolve(host: str, port: int) -> list[str]:
    """Return what the system's resolver says; it also reads decimal, octal and short forms."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Transient(f"{host} cannot be resolved: {error}") from None
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


@cache
def default_ssl_context() -> ssl.SSLContext:
    """Return the context that all clients share: reading the certificates takes 20 ms."""
    return httpx2.create_ssl_context(trust_env=False)
