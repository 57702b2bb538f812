"""A flood in virtual time: what `policy/shares.py` decides, without a database or processes."""

import heapq
from collections import Counter, deque
from dataclasses import dataclass

from fairness.measure import percentile
from fairness.plot import Plot
from syncline.policy.shares import find_heavy, reserved_share

SLOTS, RUN_SECONDS = 50, 0.05
FLOOD_JOBS, SMALL_TENANTS, SMALL_PER_SECOND = 40_000, 200, 20
FLOOD = "flood"


@dataclass(frozen=True, slots=True)
class Simulated:
    """When the jobs of small tenants started and how late, and how long the flood took."""

    lateness: list[tuple[float, float]]
    makespan: float

    @property
    def p99(self) -> float:
        return percentile([late for _, late in self.lateness], 0.99)


def simulate(*, is_fair: bool) -> Simulated:
    """Let a flood and small tenants share the slots, in the order of time or fairly."""
    flood, came, ended_at, owed = FLOOD_JOBS, 0, 0.0, 0.0
    waiting: deque[tuple[float, str]] = deque()  # of small tenants: when it came, and whose it is
    free, lateness = [0.0] * SLOTS, list[tuple[float, float]]()
    while flood or waiting:
        now = heapq.heappop(free)
        while flood and came < now * SMALL_PER_SECOND:
            waiting.append((came / SMALL_PER_SECOND, f"small-{came % SMALL_TENANTS}"))
            came += 1
        yields, reserve = flood_yields(flood, waiting) if is_fair else (False, 0.0)
        owed += reserve
        if waiting and (not flood or (yields and owed < 1)):
            lateness.append((now, now - waiting.popleft()[0]))
        else:
            flood, owed, ended_at = flood - 1, max(0.0, owed - 1), now + RUN_SECONDS
        heapq.heappush(free, now + RUN_SECONDS)
    return Simulated(lateness, ended_at)


def flood_yields(flood: int, waiting: deque[tuple[float, str]]) -> tuple[bool, float]:
    """Return whether the flood asks for more than its share, and what it gets nevertheless."""
    if not flood or not waiting:
        return False, 0.0
    due = Counter(tenant for _, tenant in waiting)
    heavy = find_heavy({**due, FLOOD: flood}, {}, SLOTS)
    return FLOOD in heavy, reserved_share(heavy, due, {})


def draw() -> Plot:
    fair, by_time = simulate(is_fair=True), simulate(is_fair=False)
    return Plot(
        "simulated-flood",
        "simulated: how late small tenants start beside a flood of 40,000 jobs, in seconds",
        {
            f"with fair shares: p99 {fair.p99:.2f} s": fair.lateness,
            f"in the order of time: p99 {by_time.p99:.1f} s": by_time.lateness,
        },
    )
