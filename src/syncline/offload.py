"""Run work in a thread that would block the event loop.

The threads are daemons, so an exit does not wait for them. What they call must end in bounded time.
"""

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")

SMALL_BYTES = 65_536  # a document of this size takes the loop less than 50 ms


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function in a new thread and return its result."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[tuple[T | None, BaseException | None]] = loop.create_future()

    def deliver(result: T | None, error: BaseException | None) -> None:
        if not done.done():
            done.set_result((result, error))

    def work() -> None:
        result: T | None = None
        failure: BaseException | None = None
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop has closed; nobody waits for the result
            loop.call_soon_threadsafe(deliver, result, failure)

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(work,), daemon=True, name="syncline-offload").start()
    result, failure = await done
    if failure is not None:
        raise failure
    return result  # type: ignore[return-value]  # there is a result if there is no failure


async def in_thread_if_large(
    size_bytes: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Call a function on a document of this size, in a thread if it is large."""
    if size_bytes <= SMALL_BYTES:
        return function(*args, **kwargs)
    return await in_thread(function, *args, **kwargs)
