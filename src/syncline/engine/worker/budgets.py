"""Takes calls out of the budgets for this process, and says of which providers jobs may start."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from syncline.clock import monotonic
from syncline.engine.context import EngineContext
from syncline.engine.worker.budget_takings import add_block, limit_of, take_over, taking_of
from syncline.errors import Invalid
from syncline.http.budget_shares import CallLimit, Share
from syncline.http.budgets import CallBudgets
from syncline.policy.budgets import (
    Bucket,
    Budget,
    Members,
    Source,
    by_provider,
    check,
    declared_by,
    in_force,
)
from syncline.sdk.connector import Connector
from syncline.store.errors import is_held
from syncline.store.pool import SessionLease, Transaction
from syncline.store.queue import budgets

READ_EVERY = timedelta(seconds=1)  # a change is obeyed soon after
STALE_SECONDS = 1.5  # a claim reads the budgets itself if the loop has not for so long
TIDY_SECONDS = 60.0
MOST_REMOVED = 10_000
LARGEST_TAKING = 1_000  # buckets in one statement
HURRY_SECONDS = 60.0
SHORTEST_WAIT, LONGEST_WAIT = 0.02, 0.5  # until a claim is tried again that found no room

Group = tuple[str, ...]
"""Providers whose calls count in the same shared budgets."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """How many jobs of these providers may be claimed, and the calls that were taken for them."""

    group: Group
    jobs: int
    calls: int


class BudgetKeeper:
    """Keeps this process within the budgets that it shares with all others.

    A provider whose budget has room for as many jobs as could be claimed is claimed with all
    others. The others are claimed apart: first their calls are taken, then as many jobs.
    """

    def __init__(
        self,
        context: EngineContext,
        connectors: Mapping[str, Connector],
        calls: CallBudgets,
        claim_now: asyncio.Event,
    ) -> None:
        self._pool = context.pool
        self._clock = context.clock
        self._telemetry = context.telemetry.budgets
        self._settings = context.settings.budgets
        self._connectors = connectors
        self._claim_now = claim_now
        self.calls = calls
        self._budgets: dict[str, Budget] = {}  # in force, by scope
        self._of: dict[str, tuple[Budget, ...]] = {}  # by provider
        self._common: dict[str, list[CallLimit]] = {}  # the same, where all share a bucket
        self._has_come = False
        self._look_at = 0.0
        self._read_at = 0.0
        self._tidy_at = monotonic() + TIDY_SECONDS
        self._busy: set[Group] = set()  # their last claim found as many jobs as it asked for
        self._try_at: dict[Group, float] = {}  # when there may be room again
        self._hurry_until = 0.0  # somebody holds a bucket: do not wait for it
        self._waking: asyncio.TimerHandle | None = None

    async def look(self, session: SessionLease) -> None:
        """Read the budgets, unless that was a moment ago."""
        if monotonic() >= self._look_at:
            async with session() as tx:
                await self._read(tx)

    def look_again(self) -> None:
        """Let the next look read the budgets, however soon it comes."""
        self._look_at = 0.0
        self._try_at.clear()

    async def _read(self, tx: Transaction) -> None:
        if not self._has_come:
            await self._bring_own(tx)
            self._has_come = True
        found, shared = await budgets.read(tx)
        self._read_at = monotonic()
        self._look_at = self._read_at + STALE_SECONDS
        if not found and not self._budgets:
            return
        self._budgets = in_force(found)
        self._of = by_provider(self._budgets)
        limits = {scope: limit_of(budget) for scope, budget in self._budgets.items()}
        self._common = {
            slug: common
            for slug, ones in self._of.items()
            if (common := [limits[one.scope] for one in ones if one.members is Members.ALL])
        }
        self.calls.set_limits(
            {slug: tuple(limits[one.scope] for one in ones) for slug, ones in self._of.items()}
        )
        if shared:
            now = await self._clock.now(tx)
            for scope, bucket in shared.items():
                if (limit := limits.get(scope)) is not None:
                    self._see_bucket(self.calls.share(limit), bucket, now)
        self._telemetry.seen(
            {share.limit.scope: share.room(self._read_at) for share in self.calls.common}
        )

    async def _bring_own(self, tx: Transaction) -> None:
        """Store the budgets of the settings and of the connectors, as this process has them."""
        now = await self._clock.now(tx)
        own = [check(one.budget) for one in self._settings]
        changed = await budgets.set_all(tx, Source.SETTINGS, own, now=now) if own else []
        removed = await budgets.clear(tx, [Source.SETTINGS], but=[one.scope for one in own])
        if declared := self._declared():
            await budgets.set_all(tx, Source.CONNECTOR, declared, now=now)
        for scope in changed:
            self._telemetry.changed(scope, "set by the settings of this process")
        for scope, _ in removed:
            self._telemetry.changed(scope, "not in the settings of this process: removed")

    def _declared(self) -> list[Budget]:
        """Return the limits of all connectors; a bad one must not stop the others."""
        found: list[Budget] = []
        for slug, connector in self._connectors.items():
            try:
                found += declared_by(slug, getattr(connector, "limits", ()))
            except (Invalid, AttributeError, TypeError) as error:
                self._telemetry.changed(slug, f"its connector's limits are ignored: {error}")
        return found

    def _see_bucket(self, share: Share, bucket: Bucket, now: datetime) -> None:
        elapsed = max(0.0, (now - bucket.counted_at).total_seconds())
        share.level = min(share.limit.capacity, bucket.tokens + elapsed * share.limit.rate)
        share.seen_at = self._read_at
        if share.said is not None:
            return  # this process knows more than the bucket does
        share.left = bucket.left_calls
        if bucket.left_until is not None:
            share.left_until = self._read_at + (bucket.left_until - now).total_seconds()

    def sharing(self, provider_slug: str) -> set[str]:
        """Return the providers that share a budget with this one, and this one itself."""
        shared = (one for one in self._of.get(provider_slug, ()) if one.members is Members.ALL)
        return {provider_slug, *(slug for budget in shared for slug in budget.providers)}

    def short_among(self, providers: Collection[str], most: int) -> list[Group]:
        """Return the providers whose budget may not have room for so many jobs, in groups."""
        if not self._common:
            return []
        now = monotonic()
        groups: dict[Sequence[str], list[str]] = {}
        for slug in providers:
            limits = self._common.get(slug, ())
            wanted = most * self.calls.calls_per_run(slug)
            shares = [self.calls.share(limit) for limit in limits]
            if any(share.waiting or share.room(now) < wanted for share in shares):
                groups.setdefault(tuple(limit.scope for limit in limits), []).append(slug)
        return [tuple(slugs) for slugs in groups.values()]

    async def reserve(self, session: SessionLease, group: Group, most: int) -> Reservation | None:
        """Take calls for the jobs of these providers; return how many jobs may be claimed.

        If the last claim found nothing more to do, it is one at most, and its calls are not taken
        yet: most claims find nothing, and would take and give back all day.
        """
        now = monotonic()
        shares = self._shared(group)
        try_at = self._try_at.get(group, 0.0)
        if now < try_at or any(share.waiting for share in shares):
            self._wake_after(max(SHORTEST_WAIT, try_at - now))
            return None
        per_run = max(self.calls.calls_per_run(slug) for slug in group)
        needed = max(1, int(most * per_run))
        if group not in self._busy and all(share.room(now) >= 1 for share in shares):
            return Reservation(group, jobs=1, calls=0)
        calls = await self._take_from_all(session, shares, needed) if group in self._busy else 0
        if calls < needed:
            self._try_later(group, shares, needed)
        jobs = min(most, max(1, int(calls / per_run)))
        return Reservation(group, jobs, calls) if calls else None

    async def _take_from_all(
        self, session: SessionLease, shares: Sequence[Share], needed: int
    ) -> int:
        """Take the same number of calls from all of these; return how many."""
        async with session() as tx:
            wants = [(share, needed, needed) for share in shares]
            got = await self._fill(tx, wants, waits=False)
        calls = min(got.values(), default=0)
        await self._give_back(session, {share: taken - calls for share, taken in got.items()})
        return calls

    async def claimed(self, session: SessionLease, reserved: Reservation, jobs: int) -> None:
        """Note how many jobs there were, and give back the calls of those that there were not."""
        is_full = jobs >= reserved.jobs
        (self._busy.add if is_full else self._busy.discard)(reserved.group)
        unused = reserved.calls * (reserved.jobs - jobs) // reserved.jobs
        await self._give_back(session, dict.fromkeys(self._shared(reserved.group), unused))

    async def _give_back(self, session: SessionLease, calls: Mapping[Share, int]) -> None:
        """Put calls back that were just taken and that nobody needs."""
        given = [share for share, count in calls.items() if count > 0]
        for share in given:
            share.take_back(calls[share])
        if given:
            async with session() as tx:
                await self._fill(tx, [(share, 0, 0) for share in given], waits=False)

    def _shared(self, group: Group) -> list[Share]:
        return [self.calls.share(limit) for limit in self._common.get(group[0], ())]

    def _try_later(self, group: Group, shares: Sequence[Share], wanted: float) -> None:
        """Let claims pass over these providers until there is some room, then try one at once."""
        now = monotonic()
        some = [min(wanted, max(1.0, share.limit.capacity / 4)) for share in shares]
        pairs = zip(shares, some, strict=True)
        wait = max((share.seconds_until(calls, now) for share, calls in pairs), default=0.0)
        first = max((share.seconds_until(1, now) for share in shares), default=0.0)
        wait = max(SHORTEST_WAIT, min(wait, max(first, LONGEST_WAIT)))
        self._try_at[group] = now + wait
        self._wake_after(wait)

    def _wake_after(self, seconds: float) -> None:
        """Let jobs be claimed after this time at the latest."""
        loop = asyncio.get_running_loop()
        at = loop.time() + seconds
        if self._waking is not None and loop.time() < self._waking.when() <= at:
            return
        if self._waking is not None:
            self._waking.cancel()
        self._waking = loop.call_later(seconds, self._claim_now.set)

    async def step(self) -> timedelta:
        """Take what calls wait for, tell what was spent and lapsed, and read the budgets."""
        self.calls.wanted.clear()
        self._count()
        self.calls.is_in_trouble = True  # unless this step succeeds
        await self._exchange(waits=monotonic() >= self._hurry_until)
        self.calls.is_in_trouble = False
        seconds = self.calls.serve()
        return READ_EVERY if seconds is None else min(READ_EVERY, timedelta(seconds=seconds))

    async def _exchange(self, *, waits: bool) -> None:
        if monotonic() >= self._read_at + READ_EVERY.total_seconds():
            async with self._pool.statement() as tx:
                await self._read(tx)
        wants = self.calls.wants()
        for start in range(0, len(wants), LARGEST_TAKING):
            await self._take(wants[start : start + LARGEST_TAKING], waits=waits)
        if monotonic() >= self._tidy_at:
            await self._tidy()

    async def tell(self) -> None:
        """Tell the buckets what was spent, if this process has not yet.

        Whatever goes wrong, it is told the next time.
        """
        if self.calls.wanted.is_set():
            with suppress(Exception):
                await self._exchange(waits=False)

    async def _take(self, wants: Sequence[tuple[Share, int, int]], *, waits: bool) -> None:
        """Take calls in a statement that ends even if this process stops: what it told was told."""

        async def fill() -> None:
            async with self._pool.statement() as tx:
                await self._fill(tx, wants, waits=waits)

        filling = asyncio.create_task(fill())
        try:
            await asyncio.shield(filling)
        except asyncio.CancelledError:
            with suppress(Exception):
                await filling
            raise

    async def _fill(
        self, tx: Transaction, wants: Sequence[tuple[Share, int, int]], *, waits: bool
    ) -> dict[Share, int]:
        """Take calls out of the buckets, and tell them what is known here.

        If somebody holds a bucket for long, the others do not wait for it.
        """
        takings = {
            share: taking_of(share, budget, needed, wanted)
            for share, needed, wanted in wants
            if (budget := self._budgets.get(share.limit.scope)) is not None
        }
        if not takings:
            return {}
        asked_at = monotonic()
        try:
            now = self._clock.instant()
            found = await budgets.take(tx, list(takings.values()), now=now, waits=waits)
        except BaseException as error:
            if is_held(error):
                self._hurry_until = monotonic() + HURRY_SECONDS
            for share, taking in takings.items():
                take_over(share, taking, was_sent=not is_held(error))
            self.calls.remember(*takings)
            raise
        for share, taking in takings.items():
            taken = found.get((share.limit.scope, share.member))
            if taken is None:
                take_over(share, taking, was_sent=False)
                self.calls.remember(share)
            else:
                add_block(share, taken, asked_at)
        return {
            share: found[key].taken if (key := (share.limit.scope, share.member)) in found else 0
            for share in takings
        }

    async def _tidy(self) -> None:
        """Forget members that make no calls, here and in the database."""
        self.calls.forget_idle()
        async with self._pool.transaction() as tx:
            now = await self._clock.now(tx)
            removed = await budgets.remove_full(tx, now=now - READ_EVERY, limit=MOST_REMOVED)
        self._tidy_at = monotonic() + (TIDY_SECONDS if removed < MOST_REMOVED else 1)

    def _count(self) -> None:
        made, deferred = self.calls.made, self.calls.deferred
        if made or deferred:
            self._telemetry.calls_made(made)
            self._telemetry.calls_deferred(deferred)
            made.clear()
            deferred.clear()
