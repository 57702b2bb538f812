"""Work that would hold the event loop, done in a thread that the loop can wait for.

The threads are daemons: an exit does not wait for them. What they call must be bounded in time.
"""

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")

SMALL_BYTES = 65_536  # of a document: what is made of it takes a loop less than 50 ms


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what the function returns, called in a thread of its own."""
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
        with contextlib.suppress(RuntimeError):  # the loop has closed; nobody waits any more
            loop.call_soon_threadsafe(deliver, result, failure)

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(work,), daemon=True, name="syncline-offload").start()
    result, failure = await done
    if failure is not None:
        raise failure
    return result  # type: ignore[return-value]  # without a failure there is a result


async def in_thread_if_large(
    size_bytes: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Return what the function makes of a document of this size, without holding the loop."""
    if size_bytes <= SMALL_BYTES:
        return function(*args, **kwargs)
    return await in_thread(function, *args, **kwargs)
