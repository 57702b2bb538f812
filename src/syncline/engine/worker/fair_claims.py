"""Claims by tenant: while one asks for more than its share, and where caps are set.

An ordinary claim takes what stands first. These name the jobs that they want, which the walk along
the queue has found, and the same statement checks each of them as ever.
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from syncline.clock import monotonic, pause
from syncline.engine.context import EngineContext
from syncline.engine.worker.ample_claims import AmpleClaims, Fill
from syncline.engine.worker.queue_walk import QueueWalk
from syncline.engine.worker.share_book import ShareBook
from syncline.engine.worker.slots import Slots
from syncline.engine.worker.wanted import Wanted
from syncline.policy.caps import EVERY, Rooms
from syncline.policy.lines import BEFORE_ALL, Line, LineColumns
from syncline.policy.shares import Turns, find_heavy, reserved_share
from syncline.store.errors import LostRace
from syncline.store.pool import SessionLease, Transaction
from syncline.store.queue import caps, claims, walks
from syncline.store.queue.claims import ClaimRequest
from syncline.store.queue.walks import Standing

NO_LINES = LineColumns(((), (), (), ()), ((), (), ()))
SAMPLED = 1000  # jobs at each end of the queue
SAMPLE_EVERY_SECONDS, SHARE_OF_SAMPLES = 1.0, 0.01
WALK_BACK = timedelta(seconds=10)
JUDGE_EVERY_SECONDS = 0.25
NOTE_EVERY_SECONDS = 1.0
WALK_PAUSE, IDLE_PAUSE = timedelta(seconds=0.03), timedelta(seconds=0.2)
MOST_OFFERED = 4  # times as many jobs as wanted: other processes may have taken most of them
TRIES, LEAST_CHECKED = 4, 100
RETRY_SECONDS, MOST_MISSED = 0.005, 50  # while another process holds a cap
FULL_SECONDS = 0.02  # a cap that was full is not asked again for so long, if others fill the slots
MOST_SUSPECTS, POISON_EVERY_SECONDS = 20, 0.5
ANY_LAPSES = 32767  # the column is a smallint
NO_CAPS = Rooms((), {}, held=())


class FairClaims:
    """Decides whose jobs one kind of slots gets, as long as that matters."""

    def __init__(self, context: EngineContext, slots: Slots, book: ShareBook) -> None:
        self._pool = context.pool
        self._clock = context.clock
        self._telemetry = context.telemetry
        self._flight_by_type = context.settings.executor.single_flight == "job_type"
        self._slots = slots
        self._book = book
        self._ample = AmpleClaims(context.pool, context.clock, book)
        self._walk = QueueWalk(context.clock, slots.providers)
        self._turns = Turns()
        self._heavy: frozenset[str] = frozenset()
        self._owed = 0.0  # slots that those who ask for more have a right to
        self._share = 0.0  # of the slots, at least
        self._looking = asyncio.Lock()
        self._is_walking = False
        self._is_ample = False  # every cap has room for a whole claim
        self._must_look = False  # before the next claim
        self._was_full = False  # the last ordinary claim
        self._is_stale = False  # the last claim under caps got less than it knew of
        self._full: dict[tuple[str, str], float] = {}  # caps, and how long to take them for full
        self._missed = 0  # claims in a row that found a cap held by another process
        self._offered = 1  # times as many jobs as wanted
        self._passes = 0
        self._sample_at = self._judge_at = self._note_at = self._poison_at = 0.0

    def note_ordinary(self, *, is_full: bool) -> None:
        """Note whether an ordinary claim found as many jobs as it asked for."""
        self._was_full = is_full

    def look_again(self) -> None:
        """Let the next claim look for everything, however soon it comes."""
        self._must_look = True
        self._book.look_again()
        self._walk.look_again()
        self._sample_at = self._judge_at = self._poison_at = 0.0

    async def is_needed(self, session: SessionLease, lines: Collection[Line]) -> bool:
        """Return whether it matters whose jobs are claimed."""
        await self._book.look(session)
        if self._book.is_fair and not self._heavy and self._was_full:
            await self._sample(session, lines)
        if not self._book.caps and not self._heavy:
            self._is_walking = False
            return False
        if not self._is_walking:
            await self._begin(session)
        return True

    async def _sample(self, session: SessionLease, lines: Collection[Line]) -> None:
        """Look at both ends of the queue for a tenant that asks for more than its share."""
        began = monotonic()
        if began < self._sample_at or not lines:
            return
        limit = max(50, SAMPLED // len(lines))
        async with session() as tx:
            due = await walks.sample(tx, list(lines), now=self._clock.instant(), limit=limit)
        is_complete = sum(due.values()) < limit
        self._heavy = find_heavy(
            due, self._book.weights, self._slots.limit, is_complete=is_complete
        ).difference(self._book.paused)
        ended = monotonic()
        self._sample_at = ended + max(SAMPLE_EVERY_SECONDS, (ended - began) / SHARE_OF_SAMPLES)

    async def _begin(self, session: SessionLease) -> None:
        """Begin to walk: with caps in order, else with what came last."""
        since = BEFORE_ALL
        if not self._book.caps:
            async with session() as tx:
                since = await self._clock.now(tx) - WALK_BACK
        async with self._looking:
            self._walk.reset(since)
        self._is_walking, self._must_look, self._passes, self._owed = True, True, 0, 0.0

    async def step(self) -> timedelta:
        """Walk along the queue, beside the claims; return how long to wait."""
        if not self._is_walking or self._is_ample:
            return IDLE_PAUSE
        async with self._pool.session() as session:
            await self._look(session)
        return WALK_PAUSE

    async def _look(self, session: SessionLease) -> None:
        """Walk on for a moment, and decide who asks for more than its share."""
        async with self._looking:
            self._must_look = False
            self._walk.set_special(self._heavy | self._book.capped_tenants)
            await self._walk.look(session)
            if self._judge():
                await self._note_heavy(session)

    async def claim(
        self, session: SessionLease, wanted: Wanted, fill: Fill
    ) -> tuple[Sequence[Any], bool]:
        """Return the claimed rows, and whether more may be due.

        `fill` claims what stands first, for slots that are left.
        """
        if self._book.caps and not self._heavy:
            ample = await self._ample.claim(session, wanted, fill)
            had_paused, self._is_ample = self._is_ample, ample is not None
            if ample is not None:
                self.note_ordinary(is_full=ample[1])
                return ample
            if had_paused:
                await self._begin(session)
        is_short = self._book.caps and self._walk.known < wanted.limit
        if self._must_look or (is_short and not self._looking.locked()):
            await self._look(session)
        if self._book.caps:
            return await self._claim_capped(session, wanted)
        if len(self._heavy) == 1 and self._offered == 1:
            return await self._claim_beside_one(session, wanted, fill)
        rows = await self._claim_by_share(session, wanted)
        if len(rows) >= wanted.limit:
            return rows, True
        filled, has_more = await fill(session, replace(wanted, limit=wanted.limit - len(rows)))
        self._walk.drop({row["id"] for row in filled}, 2 * wanted.limit)
        return [*rows, *filled], has_more

    def _judge(self) -> bool:
        """Decide who asks for more than its share, and return whether to show it."""
        weights, slots = self._book.weights, self._slots.limit
        if not self._book.is_fair:
            self._heavy = frozenset()
            return False
        if self._walk.passes > self._passes:
            self._passes = self._walk.passes
            self._heavy = find_heavy(self._walk.due, weights, slots) - self._book.paused
        elif monotonic() >= self._judge_at:
            due = self._walk.others()
            for tenant in self._heavy:
                due[tenant] = self._walk.count_due(tenant) or 2 * slots
            self._heavy = (self._heavy | find_heavy(due, weights, slots)) - self._book.paused
        else:
            return False
        self._judge_at = monotonic() + JUDGE_EVERY_SECONDS
        self._turns.keep(self._heavy)
        self._walk.set_special(self._heavy | self._book.capped_tenants)
        self._share = reserved_share(self._heavy, self._walk.others(), weights)
        self._telemetry.tenants_over_share(len(self._heavy))
        if monotonic() < self._note_at:
            return False
        self._note_at = monotonic() + NOTE_EVERY_SECONDS
        return True

    async def _note_heavy(self, session: SessionLease) -> None:
        """Show who asks for more than its share; no claim depends on it."""
        async with session() as tx:
            now = await self._clock.now(tx)
        if self._heavy:
            due = {tenant: self._walk.count_due(tenant) for tenant in sorted(self._heavy)}
            others = len({*self._walk.others(), *self._walk.due} - self._heavy)
            async with session() as tx:
                await caps.note_heavy(tx, due, others=others, now=now)
        async with session() as tx:
            await caps.forget_heavy(tx, now=now)

    def _reserve(self, limit: int) -> int:
        """Return how many of these slots are for those who ask for more than their share."""
        if not self._heavy:
            return 0
        self._owed = min(self._owed + self._share * limit, limit)
        reserved = int(self._owed)
        self._owed -= reserved
        return reserved

    async def _claim_beside_one(
        self, session: SessionLease, wanted: Wanted, fill: Fill
    ) -> tuple[Sequence[Any], bool]:
        """Claim jobs of others and what stands first; of few others, by one statement."""
        limit, rows = wanted.limit - self._reserve(wanted.limit), list[Any]()
        drawn = self._walk.draw([EVERY], limit, wanted.providers, NO_CAPS)
        if 2 * len(drawn) > wanted.limit:
            rows = await self._claim_alone(session, wanted, drawn, limit)
            drawn = []
        left = replace(wanted, limit=wanted.limit - len(rows), chosen=[job.id for job in drawn])
        if left.limit < 1:
            return rows, True
        filled, has_more = await fill(session, left)
        claimed = {row["id"] for row in filled}
        self._walk.drop(claimed, 2 * wanted.limit)
        return [*rows, *filled], has_more or not claimed.issuperset(left.chosen)

    async def _claim_by_share(self, session: SessionLease, wanted: Wanted) -> list[Any]:
        """Claim jobs of tenants within their share, in order, then those of others by weight."""
        limit = wanted.limit - self._reserve(wanted.limit)
        drawn = self._walk.draw([EVERY], self._offered * limit, wanted.providers, NO_CAPS)
        rows = []
        if self._offered > 1:
            rows, drawn = await self._claim_alone(session, wanted, drawn, limit), []
        left = wanted.limit - len(rows)
        if len(self._heavy) > 1:
            drawn += self._draw_heavy(self._offered * (left - len(drawn)), wanted, NO_CAPS)
        return rows + await self._claim_alone(session, wanted, drawn, left)

    def _draw_heavy(self, count: int, wanted: Wanted, rooms: Rooms) -> list[Standing]:
        """Draw jobs of tenants that ask for more than their share, by turns."""
        known = self._walk.count_known(self._heavy)
        turns = self._turns.deal(known, self._book.weights, max(0, count))
        drawn = {
            tenant: iter(self._walk.draw([tenant], turn, wanted.providers, rooms))
            for tenant, turn in Counter(turns).items()
        }
        found = (next(drawn[tenant], None) for tenant in turns)
        return [job for job in found if job is not None]

    async def _claim_alone(
        self, session: SessionLease, wanted: Wanted, drawn: Sequence[Standing], limit: int
    ) -> list[Any]:
        """Claim so many of the drawn jobs by one statement; what it did not reach is put back."""
        try:
            async with session() as tx:
                rows = await self._claim_drawn(tx, wanted, drawn, limit=limit)
        except LostRace:
            self._walk.put_back(drawn)
            return []
        if len(rows) >= limit:
            claimed = {row["id"] for row in rows}
            reached = max((n for n, job in enumerate(drawn, 1) if job.id in claimed), default=0)
            self._walk.put_back(drawn[reached:])
            self._offered = max(1, self._offered - 1)
        elif len(drawn) >= limit:  # other processes have the same jobs in mind
            self._offered = min(MOST_OFFERED, self._offered + 1)
        return rows

    async def _claim_drawn(
        self, tx: Transaction, wanted: Wanted, drawn: Sequence[Standing], **more: Any
    ) -> list[Any]:
        request = ClaimRequest(
            wanted.providers,
            poison_jobs=0,
            flight_by_type=self._flight_by_type,
            lines=NO_LINES,
            ended=[job.id for job in drawn],
            **{"limit": len(drawn), **more},
        )
        if not drawn or request.limit < 1:
            return []
        return list((await claims.claim(tx, request, wanted.lease)).jobs)

    async def _claim_capped(self, session: SessionLease, wanted: Wanted) -> tuple[list[Any], bool]:
        """Claim jobs where caps are set; return them, and whether more may be due.

        Most jobs are under no cap, and are claimed as ever. Caps that were full a moment ago are
        asked again only if slots are left.
        """
        rows: list[Any] = []
        full = {key for key, until in self._full.items() if until > monotonic()}
        poison, has_missed = await self._find_poison(session, wanted), False
        for _ in range(TRIES):
            left = replace(wanted, limit=wanted.limit - len(rows))
            open_caps = self._book.caps.keys() - full
            guess = Rooms(self._book.caps.values(), {}, held=open_caps)
            drawn = await self._draw_within_caps(session, left, guess)
            under = [job for job in drawn if guess.keys(job.tenant_id, job.provider_slug)]
            ids = {job.id for job in under}
            free = [job for job in drawn if job.id not in ids]
            rows += await self._claim_free(session, left, free)
            if under or poison:
                found, full, is_free = await self._claim_counted(wanted, under, poison)
                rows, poison, has_missed = rows + found, [], has_missed or not is_free
            elif len(open_caps) == len(self._book.caps):
                break
            else:
                full = set()
            if len(rows) >= wanted.limit:
                break
        self._missed = self._missed + 1 if has_missed and not rows else 0
        if self._missed:
            await pause(RETRY_SECONDS)  # another process holds a cap, for a moment only
        has_more = 0 < self._missed < MOST_MISSED or self._is_stale or not self._walk.is_at_end
        return rows, has_more or len(rows) >= wanted.limit

    async def _draw_within_caps(
        self, session: SessionLease, wanted: Wanted, rooms: Rooms
    ) -> list[Standing]:
        """Draw jobs as far as there is room: those within their share in order, then the others."""
        within = [EVERY, *sorted(self._book.capped_tenants - self._heavy)]
        if self._is_stale:  # then other processes have taken some of what is known
            count = max(wanted.limit, LEAST_CHECKED)
            first = [job.id for job in self._walk.first({*within, *self._heavy}, count)]
            async with session() as tx:
                self._walk.drop(set(first) - await walks.still_queued(tx, first), count)
        reserved = self._reserve(wanted.limit)
        drawn = self._walk.draw(within, wanted.limit - reserved, wanted.providers, rooms)
        drawn += self._draw_heavy(wanted.limit - len(drawn), wanted, rooms)
        drawn += self._walk.draw(within, wanted.limit - len(drawn), wanted.providers, rooms)
        self._is_stale = False
        return drawn

    async def _claim_free(
        self, session: SessionLease, wanted: Wanted, drawn: Sequence[Standing]
    ) -> list[Any]:
        """Claim drawn jobs that are under no cap."""
        if not drawn:
            return []
        rows = await self._claim_alone(session, wanted, drawn, len(drawn))
        self._is_stale = self._is_stale or len(rows) < len(drawn)
        return rows

    async def _claim_counted(
        self, wanted: Wanted, drawn: Sequence[Standing], poison: Sequence[Standing]
    ) -> tuple[list[Any], set[tuple[str, str]], bool]:
        """Claim drawn jobs that are under caps, as far as there is room, and a poison job.

        Return them, the caps that are full or held by another process, and whether none was held.
        """
        pairs = {(job.tenant_id, job.provider_slug) for job in (*drawn, *poison)}
        keys = self._book.covering(pairs)
        rows: list[Any] = []
        try:
            async with self._pool.transaction() as tx:
                rooms, all_free = await self._book.lock_and_count(
                    tx, keys, giving_back=self._ample.end_block()
                )
                fitting = [job for job in drawn if rooms.fits(job.tenant_id, job.provider_slug)]
                rows = await self._claim_drawn(tx, wanted, fitting, held=rooms.held)
                rows += await self._claim_poison(tx, wanted, poison, rooms)
        except LostRace:
            self._walk.put_back(drawn)
            return [], set(keys), False
        kept = {job.id for job in fitting}
        self._walk.put_back([job for job in drawn if job.id not in kept])
        self._is_stale = self._is_stale or len(rows) < len(fitting)
        full = {key for key in keys if not rooms.has_room_under(key)}
        self._full = dict.fromkeys(full, monotonic() + FULL_SECONDS)
        self._telemetry.caps_full(len(full))
        return rows, full, all_free

    async def _find_poison(self, session: SessionLease, wanted: Wanted) -> list[Standing]:
        """Return the first poison jobs, if one may run now; this is asked now and then."""
        if not wanted.poison_jobs or monotonic() < self._poison_at:
            return []
        self._poison_at = monotonic() + POISON_EVERY_SECONDS
        async with session() as tx:
            return await walks.suspects(
                tx, wanted.providers, now=self._clock.instant(), limit=MOST_SUSPECTS
            )

    async def _claim_poison(
        self, tx: Transaction, wanted: Wanted, poison: Sequence[Standing], rooms: Rooms
    ) -> list[Any]:
        """Claim the first poison job that there is room for."""
        for job in poison:
            if rooms.has_room(job.tenant_id, job.provider_slug):
                rooms.take(job.tenant_id, job.provider_slug)
                rows = await self._claim_drawn(
                    tx, wanted, [job], held=rooms.held, most_lapses=ANY_LAPSES
                )
                if rows:
                    return rows
        return []
