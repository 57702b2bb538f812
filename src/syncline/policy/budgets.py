"""How many calls all processes together may make, and the bucket that keeps them to it (P1)."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from uuid import UUID

from syncline.errors import Invalid
from syncline.sdk.limits import Limit

MOST_CALLS = 1_000_000_000
SHORTEST_SPAN, LONGEST_SPAN = timedelta(seconds=1), timedelta(days=31)
LONGEST_SCOPE = 200  # characters
LONGEST_SLUG, MOST_PROVIDERS = 100, 100
USUAL_BURST = 100  # a hundredth of the calls
LONGEST_HOLD, SHORTEST_HOLD = timedelta(seconds=1), timedelta(seconds=0.1)
HOLDS_IN_SPAN = 60
BELOW = 1 - 1e-9  # strictly less than what would allow one call more
SPAN = re.compile(r"(\d{1,9}(?:\.\d{1,6})?) ?(s|m|h|d|)", re.ASCII)
UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
TEMPLATE = re.compile(r"\{(\w*)\}")


class Source(StrEnum):
    """Who set a budget. Of several for one scope, the first in this order counts."""

    OPERATOR = "operator"
    SETTINGS = "settings"
    CONNECTOR = "connector"


class Members(StrEnum):
    """Who shares a bucket of a scope: all of its providers' calls, a tenant's or a connection's."""

    ALL = "all"
    TENANT = "tenant"
    CONNECTION = "connection"


@dataclass(frozen=True)
class Budget:
    """At most so many calls in any such span; without a number, as many as anybody likes."""

    scope: str
    calls: int | None
    per: timedelta = timedelta(hours=1)
    burst: int | None = None
    providers: tuple[str, ...] = ()
    source: Source = Source.OPERATOR
    is_reported: bool = False  # the provider's headers say what remains of it

    @cached_property
    def members(self) -> Members:
        found = TEMPLATE.search(self.scope)
        is_known = found is not None and found[1] in ("tenant", "connection")
        return Members(found[1]) if found and is_known else Members.ALL

    def member(self, tenant_id: str, connection_id: UUID | str) -> str:
        """Return whose bucket a call of this connection comes out of."""
        if self.members is Members.CONNECTION:
            return str(connection_id)
        return tenant_id if self.members is Members.TENANT else ""

    @cached_property
    def capacity(self) -> int:
        """Return how many calls the bucket holds."""
        if self.calls is None:
            return 0
        return self.burst or max(1, self.calls // USUAL_BURST)

    @cached_property
    def hold(self) -> timedelta:
        """Return how long after it was taken a call may be made. Then it lapses."""
        return min(LONGEST_HOLD, max(SHORTEST_HOLD, self.per / HOLDS_IN_SPAN))

    @cached_property
    def rate(self) -> float:
        """Return how many calls flow into the bucket per second.

        Calls that are made within a span were taken within that span or the hold before it. In
        that time no more can be taken than the bucket held at first and what has flowed into it:
        `capacity + rate · (per + hold)`, which must be less than one call more than allowed.
        """
        if self.calls is None:
            return 0.0
        room = self.calls + 1 - self.capacity
        return BELOW * room / (self.per + self.hold).total_seconds()


@dataclass(frozen=True, slots=True)
class Bucket:
    """What is left of a budget, for all or for one tenant or connection."""

    scope: str
    member: str
    tokens: float
    counted_at: datetime
    left_calls: float | None = None  # that the provider says remain, until then
    left_until: datetime | None = None
    window_at: datetime | None = None
    window_taken: int = 0  # since then

    def room(self, budget: Budget, now: datetime) -> float:
        """Return how many calls may be made now; less than 0 if more were made than there were."""
        elapsed = max(0.0, (now - self.counted_at).total_seconds())
        level = min(budget.capacity, self.tokens + elapsed * budget.rate)
        if self.left_calls is not None and self.left_until is not None and self.left_until > now:
            level = min(level, self.left_calls)
        return level

    def room_at(self, budget: Budget, now: datetime) -> datetime:
        """Return when there is room for a call."""
        elapsed = max(0.0, (now - self.counted_at).total_seconds())
        level = min(budget.capacity, self.tokens + elapsed * budget.rate)
        at = now + timedelta(seconds=max(0.0, 1 - level) / budget.rate)
        is_used_up = self.left_calls is not None and self.left_calls < 1
        if is_used_up and self.left_until is not None:
            at = max(at, self.left_until)
        return at

    def used(self, budget: Budget, now: datetime) -> int:
        """Return how many calls were taken in the current span."""
        is_over = self.window_at is None or now >= self.window_at + budget.per
        return 0 if is_over else self.window_taken


@dataclass(frozen=True, slots=True)
class BudgetUse:
    """A budget as people see it; each tenant or connection may have its own."""

    budget: Budget
    used: int | None = None  # in the current span
    room_at: datetime | None = None  # if there is none now


def describe_uses(
    budgets: Iterable[Budget], shared: Mapping[str, Bucket], now: datetime
) -> tuple[BudgetUse, ...]:
    """Return how much of each budget is used, if all of its members share one bucket."""
    found = []
    for budget in budgets:
        bucket = shared.get(budget.scope)
        if budget.members is not Members.ALL:
            found.append(BudgetUse(budget))
        elif bucket is None:
            found.append(BudgetUse(budget, 0))
        else:
            has_room = bucket.room(budget, now) >= 1
            room_at = None if has_room else bucket.room_at(budget, now)
            found.append(BudgetUse(budget, bucket.used(budget, now), room_at))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Shortage:
    """A budget without room: whose, and when there will be some."""

    scope: str
    calls: int
    per: timedelta
    room_at: datetime


def find_shortage(
    budgets: Iterable[Budget], buckets: Collection[Bucket], now: datetime
) -> Shortage | None:
    """Return the budget that has no room for the longest time, if one has none."""
    by_scope = {bucket.scope: bucket for bucket in buckets}
    short = [
        Shortage(budget.scope, budget.calls, budget.per, bucket.room_at(budget, now))
        for budget in budgets
        if budget.calls is not None
        and (bucket := by_scope.get(budget.scope)) is not None
        and bucket.room(budget, now) < 1
    ]
    return max(short, key=lambda one: one.room_at, default=None)


def in_force(budgets: Collection[Budget]) -> dict[str, Budget]:
    """Return the budget of each scope that has a limit, the operator's before the others."""
    chosen: dict[str, Budget] = {}
    order = list(Source)
    for budget in budgets:
        other = chosen.get(budget.scope)
        if other is None or order.index(budget.source) < order.index(other.source):
            # Only the connector knows of which scope the headers speak.
            chosen[budget.scope] = budget
    reported = {budget.scope for budget in budgets if budget.is_reported}
    return {
        scope: replace(budget, is_reported=scope in reported)
        for scope, budget in chosen.items()
        if budget.calls is not None
    }


def by_provider(budgets: Mapping[str, Budget]) -> dict[str, tuple[Budget, ...]]:
    """Return the budgets that a call of each provider counts in."""
    found: dict[str, list[Budget]] = {}
    for scope in sorted(budgets):
        for slug in budgets[scope].providers:
            found.setdefault(slug, []).append(budgets[scope])
    return {slug: tuple(ones) for slug, ones in found.items()}


def declared_by(provider_slug: str, limits: Iterable[Limit]) -> list[Budget]:
    """Return the budgets that a connector comes with."""
    found = []
    for limit in limits:
        per = read_span(limit.per)
        budget = Budget(
            limit.scope,
            limit.calls,
            per,
            limit.burst,
            (provider_slug,),
            Source.CONNECTOR,
            limit.is_reported,
        )
        found.append(check(budget))
    return found


def check(budget: Budget) -> Budget:
    """Return the budget with its providers; raise `Invalid` if a value is out of bounds."""
    _check_scope(budget.scope)
    if budget.calls is not None and not 1 <= budget.calls <= MOST_CALLS:
        reason = "; to make no calls, pause the provider" if budget.calls == 0 else ""
        raise Invalid("calls", f"must be from 1 to {MOST_CALLS}{reason}")
    if not SHORTEST_SPAN <= budget.per <= LONGEST_SPAN:
        raise Invalid("per", "must be from 1 second to 31 days")
    if budget.burst is not None:
        if budget.calls is None:
            raise Invalid("burst", "needs a number of calls")
        most = max(1, budget.calls // 2)
        if not 1 <= budget.burst <= most:
            raise Invalid("burst", f"must be from 1 to {most}, half of the calls")
    return replace(budget, providers=_check_providers(budget))


def _check_scope(scope: str) -> None:
    if not 0 < len(scope) <= LONGEST_SCOPE or not scope.isprintable() or scope != scope.strip():
        raise Invalid("scope", f"must be printable text of 1 to {LONGEST_SCOPE} characters")
    if "/" in scope:  # it is a part of an address
        raise Invalid("scope", "must have no slash")
    templates = TEMPLATE.findall(scope)
    if len(templates) > 1 or not set(templates) <= {"tenant", "connection"}:
        raise Invalid("scope", "may have one template: {tenant} or {connection}")
    if set(TEMPLATE.sub("", scope)) & set("{}"):
        raise Invalid("scope", "has a brace that is no template; use {tenant} or {connection}")


def _check_providers(budget: Budget) -> tuple[str, ...]:
    slugs = budget.providers or (default_provider(budget.scope),)
    if len(slugs) > MOST_PROVIDERS:
        raise Invalid("providers", f"must be at most {MOST_PROVIDERS}")
    for slug in slugs:
        if not 0 < len(slug) <= LONGEST_SLUG or not slug.isprintable():
            raise Invalid("providers", f"must be names of 1 to {LONGEST_SLUG} characters")
    return tuple(dict.fromkeys(slugs))


def default_provider(scope: str) -> str:
    """Return the provider whose calls count, if none is named: the scope without its template."""
    found = TEMPLATE.search(scope)
    return scope[: found.start()].rstrip(":/.- ") if found else scope


def read_span(value: str | float | timedelta) -> timedelta:
    """Return a span that is written as 90, "90s", "15m", "1h" or "1d"."""
    if isinstance(value, timedelta):
        return value
    found = SPAN.fullmatch(str(value).strip()) if not isinstance(value, bool) else None
    if found is None:
        raise Invalid("per", 'must be a time span such as "1h", "15m" or "60s"')
    seconds = float(found[1]) * UNITS[found[2]]
    if seconds > LONGEST_SPAN.total_seconds():
        raise Invalid("per", "must be from 1 second to 31 days")
    return timedelta(seconds=seconds)
