"""Turns at the connections to an origin, for calls that must be sent soon after they were taken."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from syncline.clock import monotonic

Origin = tuple[str, str, int]


@dataclass(slots=True)
class Turns:
    free: asyncio.Semaphore
    users: int = 0  # calls that have one, or wait for it


class ConnectionTurns:
    """Lets as many calls be under way to an origin as there are connections to it.

    A call that was taken out of a budget must not wait for a connection. After a provider has been
    slow, all that had waited would come within one window.
    """

    def __init__(self) -> None:
        self._turns: dict[tuple[asyncio.AbstractEventLoop, Origin], Turns] = {}

    @asynccontextmanager
    async def take(self, origin: Origin, most: int, deadline: float) -> AsyncIterator[float]:
        """Wait for one of so many connections; yield how many seconds that took."""
        began = monotonic()
        key = asyncio.get_running_loop(), origin  # a thread has connections of its own
        turns = self._turns.get(key) or Turns(asyncio.Semaphore(most))
        self._turns[key] = turns
        turns.users += 1
        try:
            async with asyncio.timeout_at(deadline):
                await turns.free.acquire()
            try:
                yield monotonic() - began
            finally:
                turns.free.release()
        finally:
            turns.users -= 1
            if not turns.users:
                self._turns.pop(key, None)
