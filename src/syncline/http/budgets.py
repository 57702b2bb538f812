"""The calls that this process may make: taken out of budgets in blocks, used up in a moment (P2).

The engine says which budgets there are, and fills what is asked for here. Outside an engine there
are none, and nothing waits.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from syncline.clock import monotonic
from syncline.errors import Deferred
from syncline.http.budget_shares import BLOCK_SECONDS, CallLimit, Share
from syncline.http.calls import CallLog
from syncline.http.connection_turns import ConnectionTurns
from syncline.http.gate import PATIENCE_SECONDS, ClosedProviders
from syncline.http.rate_limits import Remainder
from syncline.model import SPENT

LOW = 4  # the next block is asked for when a quarter of the last is left
SHORTEST_TRY, LONGEST_TRY = 0.05, 0.5  # between two looks for calls that somebody waits for
MOST_SPENT = 1_000_000_000  # more is not owed by any budget
FORGETTING = 0.1  # of what was known about the calls of a usual run, with each run


class Spender(NamedTuple):
    """On whose behalf a call is made."""

    provider_slug: str
    tenant_id: str = ""
    connection_id: UUID | None = None
    calls: CallLog | None = None  # of the run, where each call is noted


@dataclass(slots=True, eq=False)
class Waiter:
    """Calls that wait until there is room in all of their budgets."""

    shares: Sequence[Share]
    count: int
    connection_id: UUID | None
    asked_at: float
    calls_per_run: float
    done: "asyncio.Future[None]"


class CallBudgets:
    """The budgets of this process's calls; one for an engine.

    All of it happens on the engine's event loop. A call from a thread goes through that loop.
    """

    def __init__(self, roll: Callable[[], float] = lambda: 0.0) -> None:
        self._roll = roll
        self._limits: Mapping[str, tuple[CallLimit, ...]] = {}
        self._home: asyncio.AbstractEventLoop | None = None
        self.shares: dict[tuple[str, str], Share] = {}
        self.common: list[Share] = []  # of buckets that all members share
        self._waiters: dict[Waiter, None] = {}  # in the order in which they came
        self.connections = ConnectionTurns()
        self._touched: set[Share] = set()
        self._made: dict[UUID | None, int] = {}  # by connection, in its present run
        self._back_at: dict[UUID | None, float] = {}  # when deferred runs come back
        self._per_run: dict[str, float] = {}
        self.wanted = asyncio.Event()  # somebody waits, or there is something to tell
        self.is_in_trouble = False  # the database is away: nobody hurries the engine
        self.made: Counter[str] = Counter()  # calls by scope, since they were last counted
        self.deferred: Counter[str] = Counter()

    def open(self) -> None:
        """Let calls from threads come to this event loop."""
        self._home = asyncio.get_running_loop()

    def set_limits(self, limits: Mapping[str, tuple[CallLimit, ...]]) -> None:
        """Set the budgets that calls of each provider count in."""
        if limits == self._limits:
            return
        self._limits = limits
        current = {limit.scope: limit for ones in limits.values() for limit in ones}
        for key, share in list(self.shares.items()):
            limit = current.get(share.limit.scope)
            if limit is None and not share.waiting:
                del self.shares[key]
            elif limit is not None:
                share.limit = limit
        self.common = [share for share in self.shares.values() if not share.member]
        self._release_unlimited(current)

    def applies_to(self, provider_slug: str) -> bool:
        return provider_slug in self._limits

    async def take(self, spender: Spender, count: int = 1) -> None:
        """Take calls before they are made; wait for them, or raise `Deferred` if it takes long."""
        limits = self._limits.get(spender.provider_slug)
        if not limits or self._home is None:
            return
        if asyncio.get_running_loop() is self._home:
            await self._take(spender, limits, count)
        else:
            work = self._take(spender, limits, count)
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._home))

    async def _take(self, spender: Spender, limits: Sequence[CallLimit], count: int) -> None:
        self._made.setdefault(spender.connection_id, 0)  # it says what it spends
        now = monotonic()
        shares = [self._share(limit, spender, now) for limit in limits]
        whole = min(count, *(int(share.limit.capacity) for share in shares))
        if all(not share.waiting and share.in_hand(now) >= whole for share in shares):
            self._use(shares, whole, now)
        else:
            await self._wait(Waiter(
                shares, whole, spender.connection_id, now,
                self.calls_per_run(spender.provider_slug),
                asyncio.get_running_loop().create_future(),
            ))  # fmt: skip
        if count > whole:  # more than a bucket ever holds
            self._spend(shares, count - whole)
        self._made[spender.connection_id] = self._made.get(spender.connection_id, 0) + count

    async def _wait(self, waiter: Waiter) -> None:
        for share in waiter.shares:
            share.waiting += waiter.count
        self._waiters[waiter] = None
        self.touch(*waiter.shares)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await waiter.done
        except TimeoutError:
            if waiter.shares:  # else all of its budgets are gone
                raise self._defer(waiter, monotonic()) from None
        finally:
            if waiter in self._waiters:
                self._leave(waiter)

    def _leave(self, waiter: Waiter) -> None:
        del self._waiters[waiter]
        for share in waiter.shares:
            share.waiting -= waiter.count

    def _use(self, shares: Sequence[Share], count: int, now: float) -> None:
        for share in shares:
            share.use(count)
            self.made[share.limit.scope] += count
            is_low = LOW * share.in_hand(now) < share.last_block
            if is_low and share.use_rate * BLOCK_SECONDS >= LOW:
                self.touch(share)

    def touch(self, *shares: Share) -> None:
        """Let the engine look at what these need, or have to tell."""
        self.remember(*shares)
        if not self.is_in_trouble:
            self.wanted.set()

    def remember(self, *shares: Share) -> None:
        """Let the engine look at these the next time that it does."""
        self._touched.update(shares)

    def _defer(self, waiter: Waiter, now: float) -> Deferred:
        """Return the error that ends a run, with the time at which there is room."""
        longest = max(waiter.shares, key=lambda share: share.seconds_until(waiter.count, now))
        scope = longest.limit.scope
        self.deferred[scope] += 1
        back_at = self._back_at.get(waiter.connection_id, 0.0)
        if back_at <= now:  # else another call of the same run was deferred
            back_at = now + longest.book(waiter.calls_per_run, now, self._roll())
            self._back_at[waiter.connection_id] = back_at
        return Deferred(scope, back_at - now)

    def spend(self, spender: Spender, count: int) -> None:
        """Count calls that are made without asking; from any thread."""
        home = self._home
        if count <= 0 or home is None or not self.applies_to(spender.provider_slug):
            return
        if _running_loop() is home:
            self._spend_now(spender, count)
        else:
            home.call_soon_threadsafe(self._spend_now, spender, count)

    def spending(self, connection: Any, calls: int) -> "Spending | None":
        """Spend calls of a run. In a thread this waits until there is room for them."""
        spender = Spender(connection.provider_slug, connection.tenant_id, connection.id)
        if not self.applies_to(spender.provider_slug) or self._home is None or not calls:
            return None
        if _running_loop() is not None:
            return Spending(self, spender, calls)
        asyncio.run_coroutine_threadsafe(self.take(spender, calls), self._home).result()
        return None

    def note_spender(self, spender: Spender) -> None:
        """Note that the present run of a connection says what it spends."""
        self._made.setdefault(spender.connection_id, 0)

    def _spend_now(self, spender: Spender, count: int) -> None:
        now = monotonic()
        limits = self._limits.get(spender.provider_slug, ())
        self._made[spender.connection_id] = self._made.get(spender.connection_id, 0) + count
        self._spend([self._share(limit, spender, now) for limit in limits], count)

    def _spend(self, shares: Iterable[Share], count: int) -> None:
        for share in shares:
            share.spent = min(share.spent + count, MOST_SPENT)
            self.made[share.limit.scope] += count
            self.touch(share)

    def run_ended(self, spender: Spender) -> None:
        """Learn how many calls a run makes; one that has told of none counts as one call."""
        made = self._made.pop(spender.connection_id, None)
        self._back_at.pop(spender.connection_id, None)
        if made is None:
            self._spend_now(spender, 1)
            self._made.pop(spender.connection_id, None)
            made = 1
        usual = self._per_run.get(spender.provider_slug)
        self._per_run[spender.provider_slug] = (
            made if usual is None else usual + FORGETTING * (made - usual)
        )

    def calls_per_run(self, provider_slug: str) -> float:
        return max(1.0, self._per_run.get(provider_slug, 1.0))

    def learn(self, spender: Spender, left: Remainder) -> None:
        """Note how many calls the provider says that it has left, until its limit is reset."""
        home = self._home
        if home is not None and self.applies_to(spender.provider_slug):
            if _running_loop() is home:
                self._learn(spender, left)
            else:
                home.call_soon_threadsafe(self._learn, spender, left)

    def _learn(self, spender: Spender, left: Remainder) -> None:
        limits = self._limits.get(spender.provider_slug, ())
        spoken_of = [one for one in limits if one.is_reported]
        if not spoken_of and len(limits) == 1:
            # A limit that is much lower than ours is another one: of a user, or of a second.
            is_ours = left.limit is None or 2 * left.limit >= limits[0].calls
            spoken_of = list(limits) if is_ours else []
        remaining, now = left.calls, monotonic()
        for limit in spoken_of:
            # A reset that is further away is a mistake, or another limit's: look again by then.
            seconds = min(left.seconds, limit.per_seconds)
            share = self._share(limit, spender, now)
            if remaining >= share.room(now) + share.in_hand(now) + seconds * limit.rate:
                continue  # it has more than we would use until then
            if share.said is None or remaining < share.said[0]:
                share.said = (remaining, seconds)
                self.touch(share)
            share.left, share.left_until = remaining, now + seconds
            if (surplus := share.in_hand(now) - int(remaining)) > 0:
                share.use(surplus)  # the provider would refuse them
                share.used -= surplus

    def _share(self, limit: CallLimit, spender: Spender, now: float) -> Share:
        member = ""
        if limit.members != "all":
            is_tenant = limit.members == "tenant"
            member = spender.tenant_id if is_tenant else str(spender.connection_id)
        return self.share(limit, member, now)

    def share(self, limit: CallLimit, member: str = "", now: float | None = None) -> Share:
        share = self.shares.get((limit.scope, member))
        if share is None:
            share = Share(limit, member, monotonic() if now is None else now)
            self.shares[limit.scope, member] = share
            if not member:
                self.common.append(share)
        return share

    def wants(self) -> list[tuple[Share, int, int]]:
        """Return the shares to fill, how many calls each needs, and how many more it could use."""
        now = monotonic()
        per_run: dict[Share, float] = {}
        for waiter in self._waiters:
            for share in waiter.shares:
                per_run[share] = max(per_run.get(share, 1.0), waiter.calls_per_run)
        found = []
        touched, self._touched = self._touched, set()
        for share in touched.union(self.common):
            in_hand = share.in_hand(now)
            share.note_use(now)
            needed = max(0, share.waiting - in_hand)
            wanted = int(share.use_rate * BLOCK_SECONDS) - in_hand
            if needed and share.limit.members != "all":
                wanted = int(per_run.get(share, 1.0))
            if needed or wanted > 0 or share.spent or share.unused or share.said:
                found.append((share, needed, max(needed, wanted)))
            if share.waiting:
                self._touched.add(share)
        return found

    def serve(self) -> float | None:
        """Let calls be made for which there is room now; return when to try the others.

        Those that would wait for too long are deferred at once.
        """
        now = monotonic()
        for waiter in [one for one in self._waiters if _is_ready(one, now)]:
            if _is_ready(waiter, now) and not waiter.done.done():
                self._leave(waiter)
                self._use(waiter.shares, waiter.count, now)
                waiter.done.set_result(None)
        ahead: Counter[Share] = Counter()
        for waiter in list(self._waiters):
            seconds = 0.0
            for share in waiter.shares:
                ahead[share] += waiter.count
                if share.seen_at is not None and share.seen_at >= waiter.asked_at:
                    seconds = max(seconds, share.seconds_for(ahead[share], now))
            if now + seconds > waiter.asked_at + PATIENCE_SECONDS and not waiter.done.done():
                self._leave(waiter)
                ahead.subtract(dict.fromkeys(waiter.shares, waiter.count))
                waiter.done.set_exception(self._defer(waiter, now))
        return self._next_try(now)

    def _next_try(self, now: float) -> float | None:
        if not self._waiters:
            return None
        seconds = LONGEST_TRY
        for waiter in self._waiters:
            for share in waiter.shares:
                some = max(1.0, min(share.waiting, share.limit.rate * LONGEST_TRY))
                seconds = min(seconds, share.seconds_until(some, now))
        return max(SHORTEST_TRY, seconds)

    def _release_unlimited(self, current: Mapping[str, CallLimit]) -> None:
        """Let calls be made whose budgets are gone."""
        for waiter in list(self._waiters):
            gone = [share for share in waiter.shares if share.limit.scope not in current]
            if gone and not waiter.done.done():
                self._leave(waiter)
                waiter.shares = [share for share in waiter.shares if share not in gone]
                for share in waiter.shares:
                    share.waiting += waiter.count
                self._waiters[waiter] = None
        self.wanted.set()

    def forget_idle(self) -> None:
        """Forget what is known of tenants and connections that make no calls."""
        now = monotonic()
        for key, share in list(self.shares.items()):
            share.in_hand(now)
            if share.member and share.is_idle(now):
                del self.shares[key]
            elif share.unused:
                self.touch(share)


@dataclass(frozen=True, slots=True)
class CallPermits:
    """What decides whether a call may be made now."""

    closed: ClosedProviders | None = None
    budgets: CallBudgets | None = None


NO_PERMITS = CallPermits()


class Spending:
    """Calls that a connector makes without `self.http`.

    They are counted in any case. Who awaits this waits until there is room for them.
    """

    def __init__(self, budgets: CallBudgets, spender: Spender, calls: int) -> None:
        self._budgets, self._spender, self._calls = budgets, spender, calls
        self._is_counted = False
        budgets.note_spender(spender)
        # Whoever awaits this does so before the loop's next turn.
        self._counting = asyncio.get_running_loop().call_soon(self._count)

    def _count(self) -> None:
        self._is_counted = True
        self._budgets.spend(self._spender, self._calls)

    def __await__(self) -> Generator[Any, None, None]:
        if self._is_counted:
            return SPENT.__await__()
        self._counting.cancel()
        self._is_counted = True
        return self._budgets.take(self._spender, self._calls).__await__()


def _is_ready(waiter: Waiter, now: float) -> bool:
    return all(share.in_hand(now) >= waiter.count for share in waiter.shares)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
