"""The event loop of a process that is Syncline's own."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run the work on uvloop where it is installed (`syncline[fast]`), else as asyncio does."""
    with asyncio.Runner(loop_factory=_fast_loop()) as runner:
        return runner.run(work)


def _fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
