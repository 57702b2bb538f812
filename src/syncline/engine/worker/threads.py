"""Threads for connectors that block, and for checks of large pages."""

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Threads:
    """The threads of one run. They cannot be stopped, and never delay the end of the process."""

    def __init__(self, on_idle: Callable[[], None]) -> None:
        self.alive = 0
        self._on_idle = on_idle

    async def run(self, function: Callable[[], T]) -> T:
        """Call the function in a new thread, and return or raise what it returns or raises."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[tuple[T | None, BaseException | None]] = loop.create_future()

        def deliver(result: T | None, error: BaseException | None) -> None:
            self.alive -= 1
            if not done.done():
                done.set_result((result, error))
            if not self.alive:
                self._on_idle()

        def work() -> None:
            result: T | None = None
            failure: BaseException | None = None
            try:
                result = function()
            except BaseException as error:
                failure = error
            with contextlib.suppress(RuntimeError):  # the loop has closed; nobody waits any more
                loop.call_soon_threadsafe(deliver, result, failure)

        context = contextvars.copy_context()
        threading.Thread(
            target=context.run, args=(work,), daemon=True, name="syncline-connector"
        ).start()
        self.alive += 1
        result, failure = await done
        if failure is not None:
            raise failure
        return result  # type: ignore[return-value]  # without a failure there is a result
