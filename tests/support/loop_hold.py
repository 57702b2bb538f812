"""How long something holds an event loop, measured beside it."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass


@dataclass
class Hold:
    """The longest hold of a loop, in seconds of this process's own work.

    Processor time and not the clock: other processes of a busy machine hold no loop.
    """

    longest: float = 0


@asynccontextmanager
async def watched_loop() -> AsyncIterator[Hold]:
    """Yield a `Hold` that has the longest hold of the loop after the block."""
    hold = Hold()

    async def tick() -> None:
        last = time.process_time()
        while True:
            await asyncio.sleep(0.002)
            now = time.process_time()
            hold.longest = max(hold.longest, now - last)
            last = now

    ticking = asyncio.create_task(tick())
    await asyncio.sleep(0.01)
    hold.longest = 0
    try:
        yield hold
        await asyncio.sleep(0.01)
    finally:
        ticking.cancel()
        await asyncio.gather(ticking, return_exceptions=True)
