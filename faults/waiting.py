"""Waiting for something to become true, never for a time to pass."""

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any


class TooLate(Exception):
    """What was waited for did not come about in time."""


async def until(condition: Callable[[], Any], *, within: float, what: str) -> Any:
    """Return what the condition, awaited if need be, comes to once that is true."""
    deadline = time.monotonic() + within
    while True:
        found = condition()
        found = await found if inspect.isawaitable(found) else found
        if found:
            return found
        if time.monotonic() > deadline:
            raise TooLate(f"{what}: not within {within:g} s")
        await asyncio.sleep(0.03)
