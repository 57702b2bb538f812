"""One function owns looping, waiting and stopping; a step in progress always finishes."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import timedelta

from syncline.clock import Dice, monotonic
from syncline.telemetry.engine import Telemetry

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 2.0
FAILURES_IN_TROUBLE = 2  # in a row: one may be a session that was lost


class Loop:
    """A step repeated until it is stopped; the step returns how long to wait for the next.

    A step that raises is tried again after a growing pause, so that a database that went away
    costs time only.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[], Awaitable[timedelta]],
        telemetry: Telemetry,
        dice: Dice,
        longest_pause: float = 0,
        first_pause: timedelta = timedelta(),
    ) -> None:
        self.name = name
        self.longest_pause = longest_pause
        self._first_pause = first_pause
        self._step = step
        self._telemetry = telemetry
        self._dice = dice
        self._wake = asyncio.Event()
        self._stopping = False
        self._failures = 0
        self._last_error: Exception | None = None
        self._last_good = monotonic()

    @property
    def trouble(self) -> str | None:
        """Why it fails again and again; None where its last step was good."""
        if self._failures < FAILURES_IN_TROUBLE:
            return None
        return f"{type(self._last_error).__name__}: {self._last_error}"

    def wake(self) -> None:
        """End the present pause."""
        self._wake.set()

    def stop(self) -> None:
        self._stopping = True
        self._wake.set()

    def seconds_since_last_good_step(self) -> float:
        return monotonic() - self._last_good

    async def run(self) -> None:
        if self._first_pause:
            await self._wait(self._first_pause)
        while not self._stopping:
            self._wake.clear()
            await self._wait(await self._attempt_step())

    async def _attempt_step(self) -> timedelta:
        try:
            pause = await self._step()
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
            # A pause of nothing still lets the other tasks run.
            async with asyncio.timeout(max(pause.total_seconds(), 0)):
                await self._wake.wait()
