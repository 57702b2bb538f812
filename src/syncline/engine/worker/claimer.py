"""Claims due jobs, and remembers what makes the next claim cheap."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from syncline.clock import Clock, monotonic
from syncline.engine.context import EngineContext
from syncline.engine.worker.budgets import Group
from syncline.engine.worker.fair_claims import FairClaims
from syncline.engine.worker.gatekeeper import Gatekeeper
from syncline.engine.worker.share_book import ShareBook
from syncline.engine.worker.slots import Slots
from syncline.engine.worker.wanted import Wanted
from syncline.policy.lines import Lines
from syncline.store.errors import LostRace
from syncline.store.pool import SessionLease
from syncline.store.queue import backoffs, claims
from syncline.store.queue.claims import ClaimedRows, ClaimRequest, Lease

LOST_RACES = 3  # after this many in a row, assume that there is nothing to claim
REPEATED = 10  # claims that found nothing but lines that this process did not know
MOST_REMEMBERED = 20  # selections of providers whose ended backoffs are remembered
OFFERED_FOR_ONE = 4  # other processes may have taken most of what this one knows


@dataclass(frozen=True, slots=True, eq=False)
class ClaimedBatch:
    """Jobs that were claimed together, not yet read."""

    slots: Slots  # that they will take
    rows: Sequence[Any]
    token: UUID
    asked_at: float  # by this process's clock; the lease counts from then
    poison_jobs: int
    is_full: bool  # as many as were asked for, or more may be due for another reason
    is_part: bool = False  # others may be due, although this claim left slots free


class Claimer:
    """Claims due jobs for one kind of slots: ready ones, and those whose backoff has ended."""

    def __init__(
        self, context: EngineContext, slots: Slots, gatekeeper: Gatekeeper, book: ShareBook
    ) -> None:
        self._gatekeeper = gatekeeper
        self._fair = FairClaims(context, slots, book)
        self._budgets = gatekeeper.budgets
        self._turn = 0  # whose claim comes first, while a budget is short
        self._settings = context.settings.executor
        self._clock = context.clock
        self._telemetry = context.telemetry
        self._slots = slots
        self._lines = Lines(slots.providers)
        self._ended = EndedBackoffs(context.clock, slots.providers)
        self._ended_of_some: dict[tuple[str, ...], EndedBackoffs] = {}  # while others are shut
        self._is_idle = True  # the last claim found less than it asked for

    async def claim(
        self, session: SessionLease, limit: int, *, with_poison_job: bool
    ) -> ClaimedBatch:
        """Claim due jobs of providers that may be called, among them one poison job at most."""
        await self._gatekeeper.look(session)
        await self._budgets.look(session)
        if (batch := await self._claim_probe(session)) is not None:
            return batch
        if (batch := await self._claim_ramping(session, limit)) is not None:
            return batch
        providers = self._gatekeeper.open_among(self._slots.providers)
        poison_jobs = int(with_poison_job)
        if short := self._budgets.short_among(providers, limit):
            return await self._claim_in_turn(session, providers, short, (limit, poison_jobs))
        if not providers:
            return self._nothing()
        return await self._claim_of(session, providers, limit, poison_jobs=poison_jobs)

    def _nothing(self) -> ClaimedBatch:
        return ClaimedBatch(self._slots, (), uuid4(), monotonic(), 0, is_full=False)

    async def _claim_in_turn(
        self,
        session: SessionLease,
        providers: Sequence[str],
        short: Sequence[Group],
        most: tuple[int, int],
    ) -> ClaimedBatch:
        """Claim jobs of providers whose budget is short, or of all others, each in their turn.

        Otherwise those with a budget would take every slot before the others, or the reverse.
        """
        limit, poison_jobs = most
        apart = {slug for group in short for slug in group}
        turns = [tuple(slug for slug in providers if slug not in apart), *short]
        for turn in range(self._turn, self._turn + len(turns)):
            number = turn % len(turns)
            if number == 0:
                rest = turns[0]
                batch = (
                    await self._claim_of(session, rest, limit, poison_jobs=poison_jobs)
                    if rest
                    else self._nothing()
                )
            else:
                batch = await self._claim_short(session, turns[number], limit, poison_jobs)
            if batch.rows:
                self._turn = number + 1
                is_part = len(batch.rows) < limit
                return replace(batch, is_full=True, is_part=is_part)  # the others were not asked
        return self._nothing()

    async def _claim_short(
        self, session: SessionLease, group: Group, limit: int, poison_jobs: int
    ) -> ClaimedBatch:
        """Claim as many jobs as their budget has room for."""
        reserved = await self._budgets.reserve(session, group, limit)
        if reserved is None:
            return self._nothing()
        batch = await self._claim_of(session, group, reserved.jobs, poison_jobs=poison_jobs)
        await self._budgets.claimed(session, reserved, len(batch.rows))
        return batch

    async def _claim_probe(self, session: SessionLease) -> ClaimedBatch | None:
        """Claim one job of a provider that is down, if it is time to see whether it is up again."""
        gate = await self._gatekeeper.begin_probe(session, self._slots.providers)
        if gate is None:
            return None
        batch = await self._claim_of(session, [gate.provider_slug], 1)
        if not batch.rows:
            await self._gatekeeper.put_probe_off(session, gate)
            return None
        self._gatekeeper.probing(gate, batch.rows[0]["id"])
        return replace(batch, is_full=True)  # the others have not been asked for yet

    async def _claim_ramping(self, session: SessionLease, limit: int) -> ClaimedBatch | None:
        """Claim jobs of a provider whose jobs start slowly after a pause, as many as may start."""
        taken = await self._gatekeeper.take_starts(session, self._slots.providers, limit)
        if taken is None:
            return None
        gate, count = taken
        if short := self._budgets.short_among([gate.provider_slug], count):
            batch = await self._claim_short(session, short[0], count, 0)
        else:
            batch = await self._claim_of(session, [gate.provider_slug], count)
        await self._gatekeeper.give_back_starts(session, gate, count - len(batch.rows))
        return replace(batch, is_full=True) if batch.rows else None

    async def _claim_of(
        self, session: SessionLease, providers: Sequence[str], limit: int, *, poison_jobs: int = 0
    ) -> ClaimedBatch:
        """Claim jobs of these providers: what stands first, unless it matters whose they are."""
        # The lease counts from here, also by an injected clock: a look before may take long.
        is_fair = await self._fair.is_needed(session, self._lines.known)
        asked_at = monotonic()
        lease = Lease(uuid4(), self._clock.instant(), self._settings.lease)
        wanted = Wanted(providers, limit, poison_jobs, lease)
        rows: Sequence[Any]
        if is_fair:
            rows, is_full = await self._fair.claim(session, wanted, self._claim_first)
        else:
            rows, is_full = await self._claim_first(session, wanted)
            self._fair.note_ordinary(is_full=is_full)
        suspects = sum(row["lapses"] >= claims.POISON_LAPSES for row in rows)
        return ClaimedBatch(self._slots, rows, lease.token, asked_at, suspects, is_full)

    async def _claim_first(
        self, session: SessionLease, wanted: Wanted
    ) -> tuple[Sequence[Any], bool]:
        """Claim the jobs that stand first; return them, and whether more may be due.

        It is repeated if it found nothing but lines that this process did not know.
        """
        ended = self._ended_backoffs(wanted.providers)
        await ended.look(session, wanted.limit)
        rows, is_full = await self._claim_once(session, ended, wanted)
        for _ in range(REPEATED):
            if rows or not is_full:
                break
            rows, is_full = await self._claim_once(session, ended, wanted)
        return rows, is_full

    def _ended_backoffs(self, providers: Sequence[str]) -> "EndedBackoffs":
        """Return what is known of these providers; while some are shut, of the others alone."""
        if providers is self._slots.providers:
            self._ended_of_some.clear()
            return self._ended
        if len(self._ended_of_some) >= MOST_REMEMBERED:
            self._ended_of_some.clear()
        new = EndedBackoffs(self._clock, providers)
        return self._ended_of_some.setdefault(tuple(providers), new)

    async def _claim_once(
        self, session: SessionLease, ended: "EndedBackoffs", wanted: Wanted
    ) -> tuple[Sequence[Any], bool]:
        from_start = self._lines.is_start_due(monotonic(), is_idle=self._is_idle)
        only = None if ended is self._ended else frozenset(ended.providers)
        request = ClaimRequest(
            ended.providers,
            wanted.limit,
            poison_jobs=wanted.poison_jobs,
            flight_by_type=self._settings.single_flight == "job_type",
            lines=self._lines.columns(from_start=from_start, only=only),
            ended=[*wanted.chosen, *ended.first(OFFERED_FOR_ONE * wanted.limit)],
            chosen=len(wanted.chosen),
            held=wanted.held,
            block=wanted.block,
        )
        found = await self._race(session, request, wanted)
        if found is None:
            return (), False
        return found.jobs, self._learn(found, request, ended, from_start=from_start)

    async def _race(
        self, session: SessionLease, request: ClaimRequest, wanted: Wanted
    ) -> ClaimedRows | None:
        """Return what the claim found; None if others were faster each time.

        Under a cap it is part of a transaction, and whoever began that tries again.
        """
        if wanted.held:
            async with session() as tx:
                return await claims.claim(tx, request, wanted.lease)
        for _ in range(LOST_RACES):
            with suppress(*LostRace), self._telemetry.claim():
                async with session() as tx:
                    return await claims.claim(tx, request, wanted.lease)
        return None

    def _learn(
        self,
        found: ClaimedRows,
        request: ClaimRequest,
        ended: "EndedBackoffs",
        *,
        from_start: bool,
    ) -> bool:
        """Remember what a claim found, and return whether more may be due."""
        is_full = len(found.jobs) >= request.limit
        self._is_idle = not is_full
        has_new_lines = self._lines.learn(found.looks)
        if from_start:
            self._lines.note_start(found.looks, monotonic())
        offered = request.ended[request.chosen :]
        if offered and not has_new_lines:  # else some of them may have had to wait
            ended.take(offered, found.jobs, is_full=is_full)
        return is_full or has_new_lines or ended.has_more

    async def walk(self) -> timedelta:
        """Find out whose jobs stand where, if that matters; return how long to wait."""
        return await self._fair.step()

    def look_again(self) -> None:
        """Let the next claim look for everything that is due, however soon it comes."""
        self._gatekeeper.look_again()
        self._budgets.look_again()
        self._lines.start_over()
        self._ended.look_again()
        self._fair.look_again()
        self._ended_of_some.clear()


MOST_KNOWN = 20_000  # ended backoffs that a process remembers
MOST_READ = 200_000  # ended backoffs that it chooses them from
LOOK_EVERY_SECONDS = 0.1
SHARE_OF_LOOKS = 0.05


class EndedBackoffs:
    """The first jobs, in order, whose backoff has ended.

    After an outage a hundred thousand may end at once. No index has them in order, because a job
    enters its place when its backoff begins. So they are sorted once, and each claim is offered
    the first ones, which it checks like any other. To make them ready by an UPDATE before each
    claim took three quarters as long as the claim.
    """

    def __init__(
        self, clock: Clock, providers: Sequence[str], *, most_known: int = MOST_KNOWN
    ) -> None:
        self._clock = clock
        self.providers = providers
        self._most_known = most_known
        self._known: Sequence[UUID] = ()
        self._place = 0  # of the first that was not claimed
        self._is_cut = False  # there are more than are known
        self._was_claimed = False  # one of them, since the last look
        self._look_at = 0.0

    @property
    def has_more(self) -> bool:
        return self._place < len(self._known)

    async def look(self, session: SessionLease, wanted: int) -> None:
        """Look which backoffs have ended, if that is not known well enough."""
        began = monotonic()
        runs_out = self._is_cut and self._was_claimed and self._left < wanted
        if not runs_out and began < self._look_at:
            return
        async with session() as tx:
            self._known = await backoffs.ended(
                tx,
                self.providers,
                now=self._clock.instant(),
                limit=self._most_known,
                read=max(1, MOST_READ // len(self.providers)),
            )
        self._place, self._was_claimed = 0, False
        self._is_cut = len(self._known) == self._most_known
        ended = monotonic()
        self._look_at = ended + max(LOOK_EVERY_SECONDS, (ended - began) / SHARE_OF_LOOKS)

    @property
    def _left(self) -> int:
        return len(self._known) - self._place

    def first(self, count: int) -> Sequence[UUID]:
        return self._known[self._place : self._place + count]

    def take(self, offered: Sequence[UUID], rows: Sequence[Any], *, is_full: bool) -> None:
        """Leave out what a claim has taken of the offered jobs, and what it passed over.

        Another process has those, or a run of their connection goes on; if that ends, the next
        look finds them again.
        """
        claimed = {row["id"] for row in rows}
        places = [place for place, id_ in enumerate(offered, 1) if id_ in claimed]
        self._place += places[-1] if is_full and places else 0 if is_full else len(offered)
        self._was_claimed = self._was_claimed or bool(places)

    def look_again(self) -> None:
        self._look_at = 0.0
