"""The applications at a provider: what each allows all its users together, and when it is down."""

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from syncline import RateLimited, SyncError, Transient

LONGEST_OUTAGE_SECONDS = 40
SECONDS_BETWEEN_OUTAGES = 40
WINDOW_SECONDS = 60.0
LIMITS = (None, None, 60, 200)  # calls within a window
WITH_BUDGET = 0.7  # of the applications with a limit; the others learn of it when they meet it


def choose_applications(rng: random.Random) -> dict[str, "Application"]:
    """Return an application for each provider whose calls come in an order; threads have none."""
    chosen = {}
    for slug in ("calling", "streaming"):
        limit = rng.choice(LIMITS)
        chosen[slug] = Application(limit, limit is not None and rng.random() < WITH_BUDGET)
    return chosen


def budgets_of(applications: Mapping[str, "Application"]) -> list[dict[str, Any]]:
    """Return the settings of the budgets that keep to the known limits."""
    return [
        {"scope": slug, "calls": one.limit, "per": WINDOW_SECONDS}
        for slug, one in applications.items()
        if one.has_budget
    ]


@dataclass
class Application:
    """One application, as its provider sees it."""

    limit: int | None = None
    has_budget: bool = False  # we know the limit, and must never meet it
    is_down: bool = False
    calls: list[float] = field(default_factory=list)  # that were not refused
    overdrawn_at: list[float] = field(default_factory=list)

    def refuse(self, now: float) -> SyncError | None:
        """Count a call; return what it gets instead of an answer, if it gets none."""
        if self.is_down:
            return Transient("the provider is down")
        recent = [at for at in self.calls[-(self.limit or 0) :] if at > now - WINDOW_SECONDS]
        if self.limit is not None and len(recent) >= self.limit:
            self.overdrawn_at += [now] if self.has_budget else []
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
