"""A fair share of the server for every caller: each one's requests wait in their own queue."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from syncline.clock import monotonic

SHARED_FOR_SECONDS = 1.0
BRIEF_SECONDS = 0.25


class QueueFull(Exception):
    """The caller has too many waiting requests."""


class FairQueue:
    """Runs a few requests of a caller at once, but one at a time while other callers are active.

    Python runs one thing at a time, so every running request of a neighbour slows an answer down.
    A long request mostly waits for the database, so it holds back its caller's next one only for
    a moment.
    """

    def __init__(
        self,
        at_once: int,
        waiting: int,
        read_clock: Callable[[], float] = monotonic,
        brief_seconds: float = BRIEF_SECONDS,
    ) -> None:
        self._at_once = at_once
        self._most_waiting = waiting
        self._read_clock = read_clock
        self._brief_seconds = brief_seconds
        self._lines: dict[str, _Line] = {}
        self._last_caller, self._last_at, self._other_at = "", -1e9, -1e9

    @asynccontextmanager
    async def turn(self, caller: str) -> AsyncIterator[None]:
        """Wait for a turn, and hold it inside the block."""
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
        """Remember when a caller other than the last one sent a request."""
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
            if granted.done() and not granted.cancelled():  # granted, but the request is gone
                self._give_back(line, granted.result())
            else:
                if granted in line.waiting:  # a turn that became free meanwhile has passed it over
                    line.waiting.remove(granted)
                self._forget(line)
            raise

    def _start(self, line: "_Line") -> "_Turn":
        line.running += 1
        line.brief += 1
        turn = _Turn()
        loop = asyncio.get_running_loop()
        turn.timer = loop.call_later(self._brief_seconds, self._takes_long, line, turn)
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
    """One caller's requests: running, those of them that began just now, and waiting."""

    def __init__(self, caller: str) -> None:
        self.caller = caller
        self.running = 0
        self.brief = 0
        self.waiting: deque[asyncio.Future[_Turn]] = deque()


class _Turn:
    timer: asyncio.TimerHandle | None = None
