"""Wait for a condition, never for a fixed time."""

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any


class TooLate(Exception):
    """A condition did not become true in time."""


async def until(condition: Callable[[], Any], *, within: float, what: str) -> Any:
    """Call the condition, which may be async, until its result is true; return the result."""
    deadline = time.monotonic() + within
    while True:
        found = condition()
        found = await found if inspect.isawaitable(found) else found
        if found:
            return found
        if time.monotonic() > deadline:
            raise TooLate(f"{what}: not within {within:g} s")
        await asyncio.sleep(0.03)
