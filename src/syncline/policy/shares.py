"""Who asks for more than a fair share of the slots, and who gets the next ones (P8)."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from heapq import heapify, heappop, heapreplace
from typing import Any

from syncline.policy.caps import CapUse
from syncline.policy.gates import TenantPause

FEW = 2  # a tenant with no more jobs due asks for little, whatever its share is
MORE_THAN_FEW = 4  # and one with no more than this asks for no more than others
MORE_THAN_SHARE = 1.5  # times its share; less would have tenants that are alike yield in turn
MANY_TIMES = 16  # in a sample, the least multiple of what small tenants have that tells
LARGEST_RESERVE = 0.4  # of the slots, for those who ask for more than their share


@dataclass(frozen=True, slots=True)
class TenantShare:
    """A tenant's weight, and until when it counts as asking for more than its share."""

    tenant_id: str
    weight: float = 1
    heavy_until: datetime | None = None
    heavy_due: int = 0  # jobs that it had due then
    heavy_since: datetime | None = None
    heavy_others: int = 0  # tenants within their share that had jobs due then

    def flood(self, now: datetime) -> "Flood | None":
        """Return what it asks for, if that is more than its share now."""
        if self.heavy_until is None or self.heavy_until <= now:
            return None
        return Flood(self.tenant_id, self.heavy_since, self.heavy_due, self.heavy_others)


@dataclass(frozen=True, slots=True)
class Flood:
    """A tenant that asks for more than its share, beside how many others."""

    tenant_id: str
    since: datetime | None
    due: int
    others: int


@dataclass(frozen=True, slots=True)
class TenantLimits:
    """What is set for a tenant, and whether it asks for more than its share now."""

    tenant_id: str
    weight: float
    flood: Flood | None  # if it asks for more than its share now
    caps: tuple[CapUse, ...]
    pause: TenantPause | None = None

    @property
    def shown_caps(self) -> str:
        return ", ".join(
            f"{use.cap.max_running:,}"
            + (f" at {use.cap.provider_slug}" if use.cap.provider_slug else "")
            for use in self.caps
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "tenant_id": self.tenant_id,
            "weight": self.weight,
            "over_share": self.flood is not None,
            "over_share_since": self.flood.since if self.flood else None,
            "due": self.flood.due if self.flood else None,
            "caps": [use.as_json() for use in self.caps],
            "paused_at": self.pause.paused_at if self.pause else None,
            "paused_because": self.pause.paused_because if self.pause else None,
        }


def find_heavy(
    due: Mapping[str, int], weights: Mapping[str, float], slots: int, *, is_complete: bool = True
) -> frozenset[str]:
    """Return the tenants that ask for more than their share while others are within theirs.

    A share is what the slots come to if nobody gets more than he asks for, and what is left is
    divided by weight. If everybody asks for more, nobody has to yield, unless weights differ. Of a
    sample, only tenants that have many times as much as others are returned.
    """
    if sum(due.values()) <= slots or len(due) < 2:
        return frozenset()
    per_weight = _share_per_weight(due, weights, slots)
    shares = {tenant: per_weight * weights.get(tenant, 1) for tenant in due}
    heavy = {
        tenant
        for tenant, jobs in due.items()
        if jobs > max(MORE_THAN_FEW, MORE_THAN_SHARE * shares[tenant])
    }
    if not is_complete:
        few = sorted(due.values())[len(due) // 4]
        heavy = {tenant for tenant in heavy if due[tenant] >= MANY_TIMES * few}
    has_others = any(jobs <= max(FEW, shares[tenant]) for tenant, jobs in due.items())
    has_weights = len({weights.get(tenant, 1) for tenant in heavy}) > 1
    return frozenset(heavy) if has_others or has_weights else frozenset()


def _share_per_weight(due: Mapping[str, int], weights: Mapping[str, float], slots: int) -> float:
    """Return how many slots a weight of one comes to."""
    left, weight_left = float(slots), sum(weights.get(tenant, 1) for tenant in due)
    for tenant in sorted(due, key=lambda one: due[one] / weights.get(one, 1)):
        weight = weights.get(tenant, 1)
        if due[tenant] * weight_left >= left * weight:
            break  # from here on, everybody asks for more than there is
        left -= due[tenant]
        weight_left -= weight
    return left / weight_left if weight_left > 0 else left


def reserved_share(
    heavy: Collection[str], within: Collection[str], weights: Mapping[str, float]
) -> float:
    """Return the least share of the slots of those who ask for more, so that they never starve."""
    of_heavy = sum(weights.get(tenant, 1) for tenant in heavy)
    of_all = of_heavy + sum(weights.get(tenant, 1) for tenant in within)
    return min(LARGEST_RESERVE, of_heavy / of_all) if of_heavy else 0


class Turns:
    """Whose turn it is among tenants that ask for more than their share: each gets its weight."""

    def __init__(self) -> None:
        self._clock = 0.0  # goes on as turns are taken
        self._next: dict[str, float] = {}

    def deal(
        self, waiting: Mapping[str, int], weights: Mapping[str, float], count: int
    ) -> list[str]:
        """Return whose the next turns are, `count` at most, and no more than each can use.

        One who was away is owed nothing for that.
        """
        left = Counter(waiting)
        turns = [(max(self._next.get(one, 0), self._clock), one) for one in waiting if left[one]]
        heapify(turns)
        dealt: list[str] = []
        while turns and len(dealt) < count:
            begins, tenant = turns[0]
            self._clock = begins
            self._next[tenant] = begins + 1 / weights.get(tenant, 1)
            dealt.append(tenant)
            left[tenant] -= 1
            if left[tenant]:
                heapreplace(turns, (self._next[tenant], tenant))
            else:
                heappop(turns)
        return dealt

    def keep(self, tenants: Collection[str]) -> None:
        """Forget the others."""
        self._next = {tenant: at for tenant, at in self._next.items() if tenant in tenants}
