"""SIGINT and SIGTERM, from the first line of the program to its last.

Before a command has begun there is nothing to tidy up and a signal just ends the process. While it
runs, the first signal asks it to stop; the second ends the process at once, whatever it is doing.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

SIGNALS = (signal.SIGINT, signal.SIGTERM)
SERVICES = {"run", "up"}  # to be stopped is what they wait for, so it is no failure


class Interrupted(Exception):
    """The command was asked to stop before it was done."""


class Interrupts:
    """Calls `react` in the event loop at the first signal, and leaves with 1 at the second."""

    def __init__(self, react: Callable[[], object]) -> None:
        self.react = react
        self.received = False
        self._loop = asyncio.get_running_loop()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        # Not the loop's own handlers: those hear nothing while something blocks the loop.
        self._before = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
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
        if self.received:
            os._exit(1)
        self.received = True
        self._loop.call_soon_threadsafe(lambda: self.react())


def leave_at_once_on_a_signal() -> None:
    """Until a command takes over, end without a word at SIGINT or SIGTERM."""

    def leave(_number: int, _frame: FrameType | None) -> None:
        os._exit(0 if SERVICES.intersection(sys.argv[1:]) else 1)

    for number in SIGNALS:
        signal.signal(number, leave)
