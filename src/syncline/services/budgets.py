"""Budgets: how many calls may be made, who said so, and what is left."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal

from syncline.errors import Invalid
from syncline.policy.audit import Action, Entry
from syncline.policy.budgets import Bucket, Budget, Members, Source, check, in_force, read_span
from syncline.services.base import BaseService
from syncline.store.pool import Transaction
from syncline.store.queue import budgets

MOST_DEFERRED = 100_000  # jobs that a change lets try again at once
Calls = int | Literal["unlimited"]


@dataclass(frozen=True, slots=True)
class BudgetState:
    """A budget, and what is left of it if all of its members share one bucket."""

    scope: str
    calls: int | None
    per_seconds: float
    burst: int | None
    providers: tuple[str, ...]
    source: Source
    is_in_force: bool  # not one of another source instead
    room: float | None = None  # calls that may be made now
    room_at: datetime | None = None  # when there is room for one again
    used: int | None = None  # calls that were taken since then
    used_since: datetime | None = None


class Budgets(BaseService):
    async def list(self) -> list[BudgetState]:
        """Return all budgets by scope, the one that counts first."""

        async def read(tx: Transaction) -> list[BudgetState]:
            found, shared = await budgets.read(tx)
            now = await self._clock.now(tx)
            chosen = in_force(found)
            order = list(Source)
            found.sort(key=lambda one: (one.scope, order.index(one.source)))
            firsts = {budget.scope: budget for budget in reversed(found)}
            return [
                _state(
                    budget,
                    shared.get(budget.scope) if budget.scope in chosen else None,
                    now,
                    is_in_force=budget is firsts[budget.scope],
                )
                for budget in found
            ]

        return await self._pool.reading(read)

    async def set(
        self,
        scope: str,
        *,
        calls: Calls,
        per: str | float | timedelta = "1h",
        burst: int | None = None,
        providers: tuple[str, ...] = (),
    ) -> BudgetState:
        """Set the operator's budget of a scope. Every process obeys it within five seconds.

        What the provider said that it has left is forgotten, until it says so again.
        """
        if isinstance(calls, bool) or not (calls == "unlimited" or isinstance(calls, int)):
            raise Invalid("calls", "must be a number, or unlimited")
        number = None if calls == "unlimited" else calls
        budget = check(Budget(scope, number, read_span(per), burst, tuple(providers)))

        async def change(tx: Transaction) -> None:
            now = await self._clock.now(tx)
            before = await _stored(tx, scope, Source.OPERATOR)
            if await budgets.set_all(tx, Source.OPERATOR, [budget], now=now):
                entry = _entry(Action.BUDGETS_SET, budget, before, _shown(budget))
                await self._record(tx, entry, now=now)
            await budgets.forget_remainders(tx, scope)
            await self._end_deferrals(tx, budget.providers)

        await self._change(change)
        return next(one for one in await self.list() if one.scope == scope and one.is_in_force)

    async def clear(self, scope: str) -> Sequence[Source]:
        """Remove the operator's budget of a scope, or else the one of the settings.

        Return whose budgets were removed. What the settings say comes back when a process starts
        with them. The limits that a connector declares stay; `calls="unlimited"` overrides them.
        """

        async def change(tx: Transaction) -> Sequence[Source]:
            for source in (Source.OPERATOR, Source.SETTINGS):
                before = await _stored(tx, scope, source)
                removed = await budgets.clear(tx, [source], scope)
                if removed and before is not None:
                    entry = _entry(Action.BUDGETS_CLEAR, before, before, None)
                    await self._record(tx, entry, now=await self._clock.now(tx))
                if removed:
                    break
            await self._end_deferrals(tx, providers)
            return [source for _, source in removed]

        providers = {
            slug for one in await self.list() if one.scope == scope for slug in one.providers
        }
        return await self._change(change)

    async def _end_deferrals(self, tx: Transaction, providers: Collection[str]) -> None:
        """Let jobs that were put off try again: with the new budget there may be room."""
        now = await self._clock.now(tx)
        await budgets.end_deferrals(tx, sorted(providers), now=now, limit=MOST_DEFERRED)
        await self._wakeup.notify(tx)


async def _stored(tx: Transaction, scope: str, source: Source) -> Budget | None:
    found, _ = await budgets.read(tx)
    return next((one for one in found if (one.scope, one.source) == (scope, source)), None)


def _entry(
    action: Action, budget: Budget, before: Budget | None, after: dict[str, Any] | None
) -> Entry:
    """Return what the audit says of a budget that was changed."""
    provider = budget.providers[0] if len(budget.providers) == 1 else None
    was = None if before is None else _shown(before)
    return Entry(action, None, provider, budget.scope, before=was, after=after)


def _shown(budget: Budget) -> dict[str, Any]:
    return {
        "calls": "unlimited" if budget.calls is None else budget.calls,
        "per_seconds": budget.per.total_seconds(),
        "burst": budget.burst,
        "providers": list(budget.providers),
        "source": budget.source,
    }


def _state(
    budget: Budget, bucket: Bucket | None, now: datetime, *, is_in_force: bool
) -> BudgetState:
    state = BudgetState(
        budget.scope,
        budget.calls,
        budget.per.total_seconds(),
        budget.capacity if budget.calls is not None else None,
        budget.providers,
        budget.source,
        is_in_force,
    )
    if not is_in_force or budget.calls is None or budget.members is not Members.ALL:
        return state
    if bucket is None:
        bucket = Bucket(budget.scope, "", budget.capacity, now)
    room = bucket.room(budget, now)
    used = bucket.used(budget, now)
    return replace(
        state,
        room=max(0.0, round(room, 1)),
        room_at=None if room >= 1 else bucket.room_at(budget, now),
        used=used,
        used_since=bucket.window_at if used else None,
    )
