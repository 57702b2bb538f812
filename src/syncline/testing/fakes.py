"""A clock that a test sets, and a connector that follows a script."""

import inspect
from collections import deque
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from syncline.model import Connection, SyncResult
from syncline.sdk.connector import Connector

Line = SyncResult | BaseException | Callable[[Connection, Any], Any]


class ManualClock:
    """The engine's time in a test: `Engine(..., clock=ManualClock(start))`."""

    def __init__(self, start: datetime) -> None:
        self.set(start)

    def __call__(self) -> datetime:
        return self._now

    def advance(self, seconds: float = 0, **parts: float) -> datetime:
        """Move forward by seconds, or by any parts of a timedelta, and return the new time."""
        self._now += timedelta(seconds=seconds, **parts)
        return self._now

    def set(self, now: datetime) -> None:
        if now.tzinfo is None:
            raise ValueError("the time needs a zone, such as UTC")
        self._now = now.astimezone(UTC)


class ScriptedConnector(Connector):
    """Answers each call with the next line of its script.

    A line is a `SyncResult`, an exception to raise, or a callable `(connection, cursor)` that
    returns a `SyncResult` (or an awaitable of one). `calls` records `(connection_id, cursor)`.
    """

    def __init__(self, provider: str, script: Iterable[Line] = ()) -> None:
        self.provider = provider
        self.script = deque(script)
        self.calls: list[tuple[UUID, Any]] = []

    async def sync(self, connection: Connection, cursor: Any) -> SyncResult:
        self.calls.append((connection.id, cursor))
        if not self.script:
            raise AssertionError(f"the script of {self.provider!r} is exhausted")
        line = self.script.popleft()
        if isinstance(line, BaseException):
            raise line
        result = line(connection, cursor) if callable(line) else line
        if inspect.isawaitable(result):
            result = await result
        return result
