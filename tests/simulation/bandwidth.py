"""A slow line: so many bytes a second, which everything that is on its way shares evenly."""

import asyncio
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass

from simulation.loop import SimulatedLoop

SENT = 0.5  # bytes: what is left of a message after rounding


@dataclass(frozen=True, slots=True)
class Speed:
    bytes_per_second: float
    latency_seconds: float

    def __str__(self) -> str:
        return f"{self.bytes_per_second:,.0f} bytes/s, {1000 * self.latency_seconds:.0f} ms"


class Line:
    """What one process has on its way to the server and back."""

    def __init__(self, loop: SimulatedLoop, speed: Speed) -> None:
        self._loop = loop
        self.speed = speed
        self._bytes_left: dict[object, float] = {}
        self._late: dict[object, asyncio.TimerHandle] = {}  # sent, but on their way for a moment
        self._arrivals: dict[object, Callable[[], None]] = {}
        self._counted_at = loop.time()
        self._timer: asyncio.TimerHandle | None = None

    def carry(self, message: object, size: int, on_arrival: Callable[[], None]) -> None:
        """Carry a message, or more of one that is on its way."""
        self._count()
        self._bytes_left[message] = self._bytes_left.get(message, 0) + size
        self._arrivals[message] = on_arrival
        self._wait()

    def drop(self, *messages: object) -> None:
        """Forget what a session that has ended had on its way."""
        self._count()
        for message in messages:
            self._bytes_left.pop(message, None)
            self._arrivals.pop(message, None)
            if timer := self._late.pop(message, None):
                timer.cancel()
        self._wait()

    @property
    def next_arrival(self) -> float:
        """When the next message may arrive, by the loop's time."""
        timers = [*self._late.values(), *([self._timer] if self._timer else [])]
        return min((timer.when() for timer in timers), default=float("inf"))

    def end(self) -> None:
        """Let everything arrive: the line is fast again."""
        self._bytes_left.clear()
        self._wait()
        for message in list(self._arrivals):
            self._arrive(message)

    def _count(self) -> None:
        """Take off what has been carried since the last time."""
        elapsed, self._counted_at = self._loop.time() - self._counted_at, self._loop.time()
        if self._bytes_left:
            carried = elapsed * self.speed.bytes_per_second / len(self._bytes_left)
            for message in self._bytes_left:
                self._bytes_left[message] -= carried

    def _wait(self) -> None:
        """Look again when the next message may have arrived."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._bytes_left:
            least, messages = min(self._bytes_left.values()), len(self._bytes_left)
            seconds = max(least, 0) * messages / self.speed.bytes_per_second
            # The line belongs to no process: it works on while one is frozen.
            self._timer = self._loop.call_later(seconds, self._send, context=Context())

    def _send(self) -> None:
        """Let what has been sent arrive, after the time that every message takes."""
        self._count()
        for message in [one for one, left in self._bytes_left.items() if left < SENT]:
            del self._bytes_left[message]
            self._late[message] = self._loop.call_later(
                self.speed.latency_seconds, self._arrive, message, context=Context()
            )
        self._wait()

    def _arrive(self, message: object) -> None:
        if timer := self._late.pop(message, None):
            timer.cancel()
        self._arrivals.pop(message)()
