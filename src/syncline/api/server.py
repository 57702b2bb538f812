"""Serves the application in the engine's event loop."""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext

import uvicorn

from syncline.api.app import create_app
from syncline.api.protocol import bounded_protocol
from syncline.api.timeouts import DEFAULT_TIMEOUTS, Timeouts
from syncline.app import Engine
from syncline.errors import SettingsError
from syncline.settings import ApiSettings
from syncline.settings.checks import is_loopback


class Listener:
    """A bound socket: the port is taken, and its number is known."""

    def __init__(self, settings: ApiSettings) -> None:
        family, _, _, _, address = _resolve(settings.host, settings.port)[0]
        try:
            self.socket = socket.create_server(address[:2], family=family)
            # Accepted sockets inherit it. Without it the end of an answer waits 40 ms for the
            # client to acknowledge its beginning; asyncio does not set it on such a socket.
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            raise SettingsError(_refusal(settings, error)) from None

    @property
    def url(self) -> str:
        host, port = self.socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def close(self) -> None:
        self.socket.close()


@asynccontextmanager
async def serving(
    engine: Engine, listener: Listener, *, page: bool, timeouts: Timeouts = DEFAULT_TIMEOUTS
) -> AsyncIterator[None]:
    """Serve requests inside the block; requests in progress at its end are answered."""
    await _require_key_in_public(engine)
    app, api = create_app(engine, page=page, timeouts=timeouts), engine.settings.api
    config = uvicorn.Config(
        app,
        http=bounded_protocol(api, engine.telemetry.api, timeouts),
        ws="none",
        access_log=False,
        log_config=None,
        log_level="error",  # it warns of every malformed request, and strangers send many
        lifespan="off",
        server_header=False,
        proxy_headers=bool(api.trusted_proxies),
        forwarded_allow_ips=api.trusted_proxies,
        timeout_keep_alive=timeouts.idle_seconds,
        timeout_graceful_shutdown=timeouts.shutdown_seconds,
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener.socket]), name="syncline http")
    try:
        yield
    finally:
        server.should_exit = True
        await asyncio.shield(task)


async def _require_key_in_public(engine: Engine) -> None:
    """Refuse to serve on an address that others can reach while no API key exists."""
    host = engine.settings.api.host
    if not is_loopback(host) and not await engine.access.has_keys():
        raise SettingsError(
            f"api.host is {host!r}, which others can reach: Syncline refuses to start without an "
            "API key; create one with `syncline keys create`, or serve on 127.0.0.1"
        )


class _Server(uvicorn.Server):
    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        """Leave signal handling to the owner of the process."""
        return nullcontext()


def _resolve(host: str, port: int) -> list[tuple[socket.AddressFamily, int, int, str, tuple]]:  # type: ignore[type-arg]
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise SettingsError(f"api.host is {host!r}; {error.strerror or error}") from None
    return sorted(found, key=lambda entry: entry[0] != socket.AF_INET)


def _refusal(settings: ApiSettings, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"api.port is {settings.port}, which is in use on {settings.host}: "
            "choose another with --port, or 0 for a free one"
        )
    return f"api.port is {settings.port}; {error.strerror or error}"
