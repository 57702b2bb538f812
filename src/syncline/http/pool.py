"""The connections of an engine: they outlive a run, and runs with equal permissions share them."""

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiohttp import ClientSession

    from syncline.http.environment import HttpEnvironment


class ConnectionPool:
    """The connections of one event loop; environments with other permissions never share one."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sessions: dict[tuple[Any, ...], ClientSession] = {}

    def open(self) -> None:
        """Keep connections for clients in the running event loop, until `close`."""
        self._loop = asyncio.get_running_loop()

    def is_open_here(self) -> bool:
        """Return whether a client in the running event loop may use this pool."""
        return self._loop is asyncio.get_running_loop()

    def session(self, environment: "HttpEnvironment") -> "ClientSession":
        """Return the connections that an environment may use."""
        limits = environment.limits
        key = (
            environment.allow_private,
            environment.is_allowed,
            environment.resolve,
            environment.ssl_context,
            limits.connections_per_origin,
            limits.connect_timeout_seconds,
            limits.dns_cache_seconds,
        )
        found = self._sessions.get(key)
        if found is None:
            from syncline.http.transport import open_session  # importing it takes 0.1 s

            found = self._sessions[key] = open_session(environment)
        return found

    async def close(self) -> None:
        """Close every connection; clients that come later open their own."""
        self._loop = None
        sessions, self._sessions = list(self._sessions.values()), {}
        for session in sessions:
            await session.close()
