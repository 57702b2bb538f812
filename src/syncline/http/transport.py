"""Connections: a name is resolved, its addresses are checked, and sockets are opened to those.

They have no state of their own: no cookies and no credentials, which travel in each request.
Nothing can come between the check of an address and its use: no second DNS response, no redirect,
no proxy from the environment. TLS still verifies the requested name, and `Host` still carries it.
"""

import os
import socket
import ssl
from functools import cache, partial
from typing import Any

from aiohttp import ClientRequest, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.connector import Connection

from syncline.http.environment import HttpEnvironment
from syncline.http.failures import ProtocolError
from syncline.http.resolution import check_address, checked_addresses

IDLE_SECONDS = 30  # an idle connection is closed after this time
MAX_HEADER_BYTES = 65_536  # of one header; some providers put long lists of links into one
MAX_HEADERS = 256
MAX_UNASKED = 100  # connections that are given up, before the request is
# The request has all its headers, so that the library adds none but Host and the length.
OWN_HEADERS = ("accept", "accept-encoding", "content-type", "user-agent")


def open_session(environment: HttpEnvironment) -> ClientSession:
    """Return the connections of an environment, of which none is open yet."""
    limits = environment.limits
    connector = CleanConnector(
        resolver=CheckedResolver(environment),
        ssl=environment.ssl_context or default_ssl_context(),
        limit=0,
        limit_per_host=limits.connections_per_origin,
        keepalive_timeout=IDLE_SECONDS,
        use_dns_cache=limits.dns_cache_seconds > 0,
        ttl_dns_cache=limits.dns_cache_seconds,  # type: ignore[arg-type]  # it takes any number
        socket_factory=partial(_open_socket, environment),
    )
    return ClientSession(
        connector=connector,
        cookie_jar=DummyCookieJar(),
        trust_env=False,
        auto_decompress=False,
        skip_auto_headers=OWN_HEADERS,
        max_line_size=MAX_HEADER_BYTES,
        max_field_size=MAX_HEADER_BYTES,
        max_headers=MAX_HEADERS,
        # Our own deadline is that of the whole request.
        timeout=ClientTimeout(total=None, sock_connect=limits.connect_timeout_seconds),
    )


class CleanConnector(TCPConnector):
    """Uses no connection on which the server has sent something since the last response.

    The next request would take it for its own response, and the next request may be of another
    tenant.
    """

    async def connect(
        self, req: ClientRequest, traces: list[Any], timeout: ClientTimeout
    ) -> Connection:
        for _ in range(MAX_UNASKED):
            connection = await super().connect(req, traces, timeout)
            if connection.protocol is not None and not connection.protocol.should_close:
                return connection
            connection.close()
        raise ProtocolError("the server answers before it is asked")


class CheckedResolver(AbstractResolver):
    """Answers with checked addresses. They are kept for `dns_cache_seconds`.

    The system's resolver does not say how long an answer is valid.
    """

    def __init__(self, environment: HttpEnvironment) -> None:
        self._environment = environment

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_UNSPEC,  # noqa: ARG002  (we take both)
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for address in await checked_addresses(self._environment, host, port)
        ]

    async def close(self) -> None:
        pass


def _open_socket(environment: HttpEnvironment, target: Any) -> socket.socket:
    """Open a socket, if its address is allowed: the last check, which nothing goes around."""
    family, kind, protocol, _, address = target
    check_address(environment, address[0], address[0])
    return socket.socket(family, kind, protocol)


@cache
def default_ssl_context() -> ssl.SSLContext:
    """Return the context that all pools share; loading the certificates takes 20 ms.

    It trusts the certificates of this system, wherever variables of the environment point.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["http/1.1"])
    paths = ssl.get_default_verify_paths()
    file = paths.openssl_cafile if os.path.isfile(paths.openssl_cafile) else None
    folder = paths.openssl_capath
    if file is None and not (os.path.isdir(folder) and os.listdir(folder)):
        import certifi  # for systems without certificates of their own

        file, folder = certifi.where(), ""
    context.load_verify_locations(file, folder or None)
    return context
