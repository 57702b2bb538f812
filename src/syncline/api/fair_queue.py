"""Lets callers share the server: what one asks for at once waits in a line of its own."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from syncline.clock import monotonic

SHARED_FOR_SECONDS = 1.0
BRIEF_SECONDS = 0.25


class QueueFull(Exception):
    """The caller has as many requests waiting as it may have."""


class FairQueue:
    """Runs a few requests of each caller at once, and one by one while others ask too.

    The interpreter does one thing at a time, so that each request of a neighbour that runs makes
    an answer take as long again. A request that takes long mostly waits for the database: it holds
    up its caller's next one only briefly.
    """

    def __init__(
        self, at_once: int, waiting: int, read_clock: Callable[[], float] = monotonic
    ) -> None:
        self._at_once = at_once
        self._most_waiting = waiting
        self._read_clock = read_clock
        self._lines: dict[str, _Line] = {}
        self._last_caller, self._last_at, self._other_at = "", -1e9, -1e9

    @asynccontextmanager
    async def turn(self, caller: str) -> AsyncIterator[None]:
        """Wait for a turn and hold it."""
        self._note(caller)
        line = self._lines.get(caller) or self._lines.setdefault(caller, _Line(caller))
        if len(line.waiting) >= self._most_waiting:
            raise QueueFull
        turn = await self._take(line)
        try:
            yield
        finally:
            self._give_back(line, turn)

    def _note(self, caller: str) -> None:
        """Remember when anybody but the last caller asked."""
        if caller != self._last_caller:
            self._other_at, self._last_caller = self._last_at, caller
        self._last_at = self._read_clock()

    def _is_shared(self, caller: str) -> bool:
        other_at = self._other_at if caller == self._last_caller else self._last_at
        return self._read_clock() - other_at < SHARED_FOR_SECONDS

    def _may_start(self, line: "_Line") -> bool:
        if line.running >= self._at_once:
            return False
        return line.brief == 0 or not self._is_shared(line.caller)

    async def _take(self, line: "_Line") -> "_Turn":
        if not line.waiting and self._may_start(line):
            return self._start(line)
        granted: asyncio.Future[_Turn] = asyncio.get_running_loop().create_future()
        line.waiting.append(granted)
        try:
            return await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():  # granted, but nobody is there to use it
                self._give_back(line, granted.result())
            else:
                line.waiting.remove(granted)
                self._forget(line)
            raise

    def _start(self, line: "_Line") -> "_Turn":
        line.running += 1
        line.brief += 1
        turn = _Turn()
        loop = asyncio.get_running_loop()
        turn.timer = loop.call_later(BRIEF_SECONDS, self._takes_long, line, turn)
        return turn

    def _takes_long(self, line: "_Line", turn: "_Turn") -> None:
        turn.timer = None
        line.brief -= 1
        self._grant(line)

    def _give_back(self, line: "_Line", turn: "_Turn") -> None:
        line.running -= 1
        if turn.timer is not None:
            turn.timer.cancel()
            line.brief -= 1
        self._grant(line)
        self._forget(line)

    def _grant(self, line: "_Line") -> None:
        while line.waiting and self._may_start(line):
            granted = line.waiting.popleft()
            if not granted.done():
                granted.set_result(self._start(line))

    def _forget(self, line: "_Line") -> None:
        if not line.running and not line.waiting:
            self._lines.pop(line.caller, None)


class _Line:
    """One caller's requests: those that run, those of them that began just now, and the rest."""

    def __init__(self, caller: str) -> None:
        self.caller = caller
        self.running = 0
        self.brief = 0
        self.waiting: deque[asyncio.Future[_Turn]] = deque()


class _Turn:
    timer: asyncio.TimerHandle | None = None
