"""Loops: one class owns repeating, waiting and stopping; a step in progress always finishes."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta

from syncline.clock import Dice, monotonic
from syncline.telemetry.engine import Telemetry

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 2.0
FAILURES_IN_TROUBLE = 2  # in a row: one may be a lost session
LONGEST_SILENCE_SECONDS = 30  # beyond its longest pause, a loop without a good step is in trouble


@dataclass(frozen=True, slots=True)
class LoopSpec:
    """What a loop does: a step, which returns how long to wait for the next one.

    Setting `wake` ends the present pause.
    """

    name: str
    step: Callable[[], Awaitable[timedelta]]
    longest_pause: timedelta = timedelta()
    first_pause: timedelta = timedelta()
    wake: asyncio.Event = field(default_factory=asyncio.Event)


class Loop:
    """Repeats a step until it is stopped.

    A step that raises is tried again after a growing pause, so a database outage only costs time.
    """

    def __init__(self, spec: LoopSpec, telemetry: Telemetry, dice: Dice) -> None:
        self.name = spec.name
        self._spec = spec
        self._telemetry = telemetry
        self._dice = dice
        self._wake = spec.wake
        self._stopping = False
        self._failures = 0
        self._last_error: Exception | None = None
        self._last_good = monotonic()

    @property
    def trouble(self) -> str | None:
        """Why the loop keeps failing, or that it has made no progress for too long; else None."""
        if self._failures >= FAILURES_IN_TROUBLE:
            return f"{type(self._last_error).__name__}: {self._last_error}"
        seconds = monotonic() - self._last_good
        if seconds > self._spec.longest_pause.total_seconds() + LONGEST_SILENCE_SECONDS:
            return f"no good step for {seconds:.0f} s"
        return None

    def wake(self) -> None:
        """End the present pause."""
        self._wake.set()

    def stop(self) -> None:
        self._stopping = True
        self._wake.set()

    async def run(self) -> None:
        if self._spec.first_pause:
            await self._wait(self._spec.first_pause)
        while not self._stopping:
            self._wake.clear()
            await self._wait(await self._attempt_step())

    async def _attempt_step(self) -> timedelta:
        try:
            pause = await self._spec.step()
        except Exception as error:
            self._failures += 1
            self._last_error = error
            pause = self._error_pause()
            self._telemetry.loop_failed(self.name, error, pause)
            return pause
        if self._failures:
            self._failures, self._last_error = 0, None
            self._telemetry.database_back(self.name)
        self._last_good = monotonic()
        return pause

    def _error_pause(self) -> timedelta:
        longest = min(FIRST_PAUSE * 2 ** min(self._failures - 1, 10), LONGEST_PAUSE)
        return timedelta(seconds=longest * (0.75 + 0.25 * self._dice.roll()))

    async def _wait(self, pause: timedelta) -> None:
        if self._stopping:
            return
        with contextlib.suppress(TimeoutError):
            # Even a pause of zero lets the other tasks run.
            async with asyncio.timeout(max(pause.total_seconds(), 0)):
                await self._wake.wait()
