"""Followers of signals: each signal as it comes in, across lost connections and restarts."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from math import inf
from typing import Any

from syncline.client.answers import Batch, Signal
from syncline.client.calls import Call
from syncline.client.transport import Transport

HELD_SECONDS = 20  # how long the server holds a request open while nothing is new
PATH = "/v1/signals/follow"


class Follower:
    """Iterates over signals for ever, and reconnects by itself.

    `position` is where to continue. Store it with what you made of the signals: one that you took
    from a loop is repeated after a crash until its batch is done, one of `batches()` never is if
    you store the batch's position in the same transaction.
    """

    def __init__(self, transport: Transport, query: Mapping[str, Any], position: str) -> None:
        self._transport = transport
        self._query = dict(query)
        self.position = position

    async def __aiter__(self) -> AsyncIterator[Signal]:
        while True:
            batch = await self._next()
            for signal in batch.items:
                yield signal
            self.position = batch.position

    async def batches(self) -> AsyncIterator[Batch]:
        """Iterate over batches, each with the position after it. Empty ones are left out."""
        while True:
            batch = await self._next()
            self.position = batch.position
            if batch.items or batch.server_changed:
                yield batch

    async def _next(self) -> Batch:
        query = {"wait": HELD_SECONDS, **self._query, "position": self.position}
        call: Call[Batch] = Call("GET", PATH, Batch, query)
        return await self._transport.send(call, attempts=inf, timeout=HELD_SECONDS + 30)


class PlainFollower:
    """A `Follower` for code without asyncio."""

    def __init__(
        self, follower: Follower, iterate: Callable[[AsyncIterator[Any]], Iterator[Any]]
    ) -> None:
        self._follower = follower
        self._iterate = iterate

    @property
    def position(self) -> str:
        return self._follower.position

    def __iter__(self) -> Iterator[Signal]:
        return self._iterate(aiter(self._follower))

    def batches(self) -> Iterator[Batch]:
        return self._iterate(self._follower.batches())
