"""The applications at a provider: what each allows all its users together, and when it is down."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from syncline import RateLimited, SyncError, Transient

LONGEST_OUTAGE_SECONDS = 40
SECONDS_BETWEEN_OUTAGES = 40
WINDOW_SECONDS = 10.0
LIMITS = (None, None, 15, 40)  # calls within a window


@dataclass
class Application:
    """One application, as its provider sees it."""

    limit: int | None = None
    is_down: bool = False
    calls: list[float] = field(default_factory=list)  # that were not refused

    def refuse(self, now: float) -> SyncError | None:
        """Count a call; return what it gets instead of an answer, if it gets none."""
        if self.is_down:
            return Transient("the provider is down")
        recent = [at for at in self.calls[-(self.limit or 0) :] if at > now - WINDOW_SECONDS]
        if self.limit is not None and len(recent) >= self.limit:
            wait = recent[0] + WINDOW_SECONDS - now
            return RateLimited("slow down, all of you", retry_after_seconds=wait, scope="app")
        self.calls.append(now)
        return None

    async def fail_now_and_then(self, rng: random.Random, note: Callable[[str], None]) -> None:
        """Be down for a while, again and again."""
        while True:
            await asyncio.sleep(rng.expovariate(1 / SECONDS_BETWEEN_OUTAGES))
            self.is_down = True
            note("outage of a provider")
            await asyncio.sleep(rng.uniform(1, LONGEST_OUTAGE_SECONDS))
            self.is_down = False
