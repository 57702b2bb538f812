"""SIGINT, SIGTERM and SIGHUP: the first stops a command, the second ends the process at once."""

import asyncio
import os
import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

from syncline.clock import monotonic

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
ECHO_SECONDS = 0.05  # a closing terminal, `timeout` and others send a signal twice


class Interrupted(Exception):
    """The command was stopped by a signal before it finished."""


async def stopped_within(stop: asyncio.Event, seconds: float) -> bool:
    """Wait up to this many seconds; return whether the event was set."""
    try:
        async with asyncio.timeout(seconds):
            return await stop.wait()
    except TimeoutError:
        return False


class Interrupts:
    """Calls `react` in the event loop at the first signal, and exits with 1 at the second."""

    def __init__(self, react: Callable[[], object]) -> None:
        self.react = react
        self._received_at: float | None = None
        self._loop = asyncio.get_running_loop()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in SIGNALS:
            if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                continue  # started with nohup: it should survive its terminal
            # Not the loop's own handlers: they do not run while something blocks the loop.
            self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self._received_at is None:
            self._received_at = monotonic()
            self._loop.call_soon_threadsafe(lambda: self.react())
        elif monotonic() - self._received_at > ECHO_SECONDS:
            os._exit(1)
