"""Knows which providers may be called now, and finds out which ones are down."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from syncline.clock import monotonic, new_id
from syncline.engine.context import EngineContext
from syncline.engine.worker.budgets import BudgetKeeper
from syncline.errors import RateLimited
from syncline.http.gate import ClosedProviders
from syncline.policy.breaker import counts, is_down, is_failure, is_own_network, next_probe
from syncline.policy.gates import LIMITED_WITHIN, Gate, is_for_everybody
from syncline.policy.outcome import Ending, Raised, find_deferred
from syncline.policy.ramp import backlog_after_absence
from syncline.store.pool import SessionLease, Transaction
from syncline.store.queue import gates
from syncline.store.queue.claims import Claim

STEP_EVERY = timedelta(seconds=0.5)
STALE_SECONDS = 0.75  # a claim reads the gates itself if the loop has not for so long
REPORT_EVERY = timedelta(seconds=1)
REPORT_COUNTS = timedelta(seconds=3)  # a report that is older is of a process that is well or gone
LONGEST_PROBE = timedelta(minutes=1)  # then its worker is taken for gone
STARTS_EVERY_SECONDS = 60.0
NAMED_CONNECTIONS = 5  # of a report: enough to count up to the least that the rules ask for


class Window:
    """The attempts of one provider in the last minute, second by second."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._attempts: dict[int, int] = defaultdict(int)
        self._failures: dict[int, int] = defaultdict(int)
        self._failing: dict[UUID, int] = {}  # connections, and when each failed last

    def succeeded(self, count: int, now: float) -> None:
        self._attempts[int(now)] += count
        if len(self._attempts) > 2 * self._seconds:
            self._forget(now)

    def failed(self, connection_id: UUID, now: float, *, is_down: bool) -> None:
        self._attempts[int(now)] += 1
        if is_down:
            self._failures[int(now)] += 1
            self._failing.pop(connection_id, None)
            self._failing[connection_id] = int(now)

    def tally(self, now: float) -> tuple[int, int, Sequence[UUID]]:
        """Return attempts, failures, and some connections of the failures."""
        self._forget(now)
        connections = list(self._failing)[-NAMED_CONNECTIONS:]
        return sum(self._attempts.values()), sum(self._failures.values()), connections

    def _forget(self, now: float) -> None:
        oldest = now - self._seconds
        for seen in (self._attempts, self._failures):
            for second in [second for second in seen if second < oldest]:
                del seen[second]
        for id_ in [id_ for id_, second in self._failing.items() if second < oldest]:
            del self._failing[id_]


@dataclass(slots=True)
class Notes:
    """What runs have shown since the last step, to be written by the next one."""

    limited: list[tuple[str, UUID, datetime]] = field(default_factory=list)
    closed: dict[str, datetime] = field(default_factory=dict)  # for everybody, until then
    probes: list[tuple[Gate, bool | None]] = field(default_factory=list)  # good, bad or cut short

    @property
    def is_empty(self) -> bool:
        return not (self.limited or self.closed or self.probes)


class Gatekeeper:
    """Reads the gates for the claims and the calls of this process, and writes what its runs show.

    The gates are read twice a second, so a provider that was closed is left alone by every process
    within a second. Where nobody is in trouble, all of it is a few small statements a second.
    """

    def __init__(
        self,
        context: EngineContext,
        providers: Collection[str],
        closed: ClosedProviders,
        budgets: BudgetKeeper,
    ) -> None:
        self._pool = context.pool
        self._clock = context.clock
        self._telemetry = context.telemetry
        self._rules = context.settings.breaker.rules
        self._closed = closed
        self.budgets = budgets
        self._providers = providers
        self._process_id = new_id()
        self._has_come = False
        self._gates: dict[str, Gate] = {}
        self._now: datetime | None = None  # when they were read
        self._read_at = 0.0  # the same by this process's clock
        self._look_at = 0.0
        self._windows: dict[str, Window] = {}
        self._reported: set[str] = set()  # providers that some process sees failing
        self._probes: dict[UUID, Gate] = {}  # by the job that probes
        self._notes = Notes()
        self._report_at = 0.0
        self._starts: Counter[str] = Counter()  # since they were last written
        self._starts_at = monotonic() + STARTS_EVERY_SECONDS
        self.step_now = asyncio.Event()  # ends the pause before the next step

    async def look(self, session: SessionLease) -> None:
        """Read the gates, unless that was a moment ago."""
        if self._has_come and monotonic() < self._look_at:
            return
        async with session() as tx:
            if not self._has_come:  # before its first claim, even if the loop has read them
                await self._come_back(tx)
                self._has_come = True
            await self._read(tx)

    def look_again(self) -> None:
        """Let the next look read the gates, however soon it comes."""
        self._look_at = 0.0

    async def _read(self, tx: Transaction) -> None:
        found = await gates.read(tx)
        now = await self._clock.now(tx) if found else None
        before = self._gates
        self._gates = {gate.provider_slug: gate for gate in found}
        self._now, self._read_at = now, monotonic()
        self._look_at = self._read_at + STALE_SECONDS
        for slug, gate in self._gates.items():
            was = before.get(slug)
            if gate.opened_at is not None and (was is None or was.opened_at != gate.opened_at):
                self._windows.pop(slug, None)  # what was seen before has had its effect
        self._closed.set(
            {
                slug: self._read_at + (gate.closed_until - now).total_seconds()
                for slug, gate in self._gates.items()
                if now is not None and gate.closed_until is not None and gate.is_closed(now)
            }
        )
        shut = [gate.provider_slug for gate in found if now is not None and gate.is_shut(now)]
        self._telemetry.providers_shut(shut)

    def _time(self) -> datetime:
        """Return the engine's time, counted on from when the gates were read."""
        assert self._now is not None
        return self._clock.instant() or self._now + timedelta(seconds=monotonic() - self._read_at)

    def open_among(self, providers: Sequence[str]) -> Sequence[str]:
        """Return the providers whose jobs may start as they are due."""
        if not self._gates:
            return providers
        now = self._time()
        kept_back = {
            slug for slug, gate in self._gates.items() if gate.is_shut(now) or gate.is_ramping(now)
        }
        return [slug for slug in providers if slug not in kept_back] if kept_back else providers

    async def take_starts(
        self, session: SessionLease, providers: Iterable[str], most: int
    ) -> tuple[Gate, int] | None:
        """Take starts of a provider that is ramping; return its gate and how many jobs may start.

        All processes share them.
        """
        if not self._gates:
            return None
        now = self._time()
        for slug in providers:
            gate = self._gates.get(slug)
            if gate is None or gate.is_shut(now) or not gate.is_ramping(now):
                continue
            if count := min(most, gate.room(now)):
                async with session() as tx:
                    taken = await gates.take_starts(
                        tx, gate, count, allowed=gate.ramp_taken + gate.room(now)
                    )
                    self._gates[slug] = await gates.read_one(tx, slug) or gate
                if taken:
                    return gate, count
        return None

    async def give_back_starts(self, session: SessionLease, gate: Gate, count: int) -> None:
        if count:
            async with session() as tx:
                await gates.give_back_starts(tx, gate, count)

    def started(self, provider_slug: str, count: int) -> None:
        """Record that jobs of a provider have started."""
        self._starts[provider_slug] += count

    async def begin_probe(self, session: SessionLease, providers: Iterable[str]) -> Gate | None:
        """Return an open gate that this process is to probe now; its slot is taken for that."""
        if not self._gates:
            return None
        now = self._time()
        for slug in providers:
            gate = self._gates.get(slug)
            if gate is not None and gate.wants_probe(now):
                async with session() as tx:
                    begun = await gates.begin_probe(tx, slug, now=now, until=now + LONGEST_PROBE)
                self.look_again()
                if begun:
                    return gate
        return None

    def probing(self, gate: Gate, job_id: UUID) -> None:
        """Remember which job probes a provider."""
        self._probes[job_id] = gate

    async def put_probe_off(self, session: SessionLease, gate: Gate) -> None:
        """Try again later: there was no job to probe with."""
        wait = gate.probe_wait or self._rules.first_probe
        async with session() as tx:
            now = await self._clock.now(tx)
            await gates.end_probe(tx, gate, at=now + REPORT_EVERY, wait=wait)

    def succeeded(self, provider_slug: str, count: int) -> None:
        """Record runs that returned a page."""
        self._window(provider_slug).succeeded(count, monotonic())

    def pages_returned(self, job_ids: Iterable[UUID]) -> None:
        """Record which jobs returned a page; one of them may be a probe."""
        for job_id in job_ids if self._probes else ():
            self._end_probe(job_id, is_good=True)

    def ended(self, claim: Claim, ending: Ending, limited_until: datetime | None) -> None:
        """Record a run that returned no page."""
        error = ending.error if isinstance(ending, Raised) else None
        if error is None or find_deferred(error):
            self._end_probe(claim.id, is_good=None)
            return
        self._end_probe(claim.id, is_good=not is_failure(error))
        if not counts(error):
            return
        slug, connection_id = claim.provider_slug, claim.connection_id
        self._window(slug).failed(connection_id, monotonic(), is_down=is_failure(error))
        if isinstance(error, RateLimited) and limited_until is not None:
            if getattr(error, "scope", None) == "app":
                until = self._notes.closed.get(slug, limited_until)
                self._notes.closed[slug] = max(until, limited_until)
            else:
                self._notes.limited.append((slug, connection_id, limited_until))
            self.step_now.set()  # all processes are to know within a second

    def _window(self, provider_slug: str) -> Window:
        window = self._windows.get(provider_slug)
        if window is None:
            window = Window(self._rules.window.total_seconds())
            self._windows[provider_slug] = window
        return window

    def _end_probe(self, job_id: UUID, *, is_good: bool | None) -> None:
        if (gate := self._probes.pop(job_id, None)) is not None:
            self._notes.probes.append((gate, is_good))
            self.step_now.set()

    async def step(self) -> timedelta:
        """Read the gates, and write what runs have shown since the last step.

        This happens here and not before the claims, because a process whose slots are all taken
        makes none, and its runs must not call a provider that is closed either.
        """
        notes, self._notes = self._notes, Notes()
        try:
            if notes.is_empty and not self._is_report_due():
                async with self._pool.statement() as tx:
                    await self._read(tx)
            else:
                if notes.limited:
                    await self._note_limited(notes)
                async with self._pool.transaction() as tx:
                    await self._write(tx, notes)
                    await self._read(tx)
        except BaseException:
            self._notes.limited += notes.limited
            self._notes.closed = notes.closed | self._notes.closed
            self._notes.probes += notes.probes
            raise
        return STEP_EVERY

    def _is_report_due(self) -> bool:
        """Return whether something is to be reported, judged or tidied up, once a second."""
        if monotonic() < self._report_at:
            return False
        self._report_at = monotonic() + REPORT_EVERY.total_seconds()
        return True

    async def _come_back(self, tx: Transaction) -> None:
        """Let the jobs of providers start slowly if the fleet was away and they have piled up."""
        now = await self._clock.now(tx)
        for slug in self._providers:
            history = await gates.read_history(tx, slug)
            backlog = None if history is None else backlog_after_absence(history, now)
            if history is None or backlog is None or history.usual_rate is None:
                continue
            if await gates.has_backlog(tx, slug, backlog, now=now):
                await gates.begin_ramp(tx, slug, history.usual_rate, now=now)

    async def _write(self, tx: Transaction, notes: Notes) -> None:
        now = await self._clock.now(tx)
        await self._close_limited(tx, notes, now)
        await self._end_probes(tx, notes, now)
        await self._find_down(tx, now)
        if self._starts and monotonic() >= self._starts_at:
            starts, self._starts = self._starts, Counter()
            self._starts_at = monotonic() + STARTS_EVERY_SECONDS
            await gates.add_starts(tx, starts, now=now)
        if self._gates:
            await gates.remove_passed(tx, now=now)

    async def _note_limited(self, notes: Notes) -> None:
        """Commit them before they are counted: of several processes, the last one sees them all."""
        async with self._pool.transaction() as tx:
            now = await self._clock.now(tx)
            await gates.note_limited(tx, notes.limited, now=now, within=LIMITED_WITHIN)

    async def _close_limited(self, tx: Transaction, notes: Notes, now: datetime) -> None:
        closed = dict(notes.closed)
        if notes.limited:
            slugs = {slug for slug, _, _ in notes.limited}
            sharing = {slug: self.budgets.sharing(slug) for slug in slugs}
            sharers = {one for several in sharing.values() for one in several}
            found = await gates.count_limited(tx, slugs | sharers, since=now - LIMITED_WITHIN)
            for slug in slugs:
                limited = [found[one] for one in sharing[slug] if one in found]
                if is_for_everybody(sum(connections for connections, _ in limited)):
                    until = max(until for _, until in limited)
                    closed[slug] = max(until, closed.get(slug, until))
        # A budget that providers share is one limit: all of them are closed.
        for first, until in list(closed.items()):
            for slug in self.budgets.sharing(first):
                closed[slug] = max(until, closed.get(slug, until))
        for slug, until in sorted(closed.items()):
            if until > now:
                rate = await gates.read_usual_rate(tx, slug)
                await gates.close_until(tx, slug, until, rate=rate)
                self._telemetry.provider_closed(slug, until - now)

    async def _end_probes(self, tx: Transaction, notes: Notes, now: datetime) -> None:
        for gate, is_good in notes.probes:
            if is_good:
                rate = await gates.read_usual_rate(tx, gate.provider_slug)
                if await gates.close(tx, gate, now=now, rate=rate):
                    self._telemetry.provider_up(gate.provider_slug)
                continue
            wait = gate.probe_wait or self._rules.first_probe
            if is_good is False:
                wait = next_probe(wait, self._rules, is_own_network=self._is_own_network())
            await gates.end_probe(tx, gate, at=now + wait, wait=wait)

    def _is_own_network(self) -> bool:
        return is_own_network(gate.opened_at for gate in self._gates.values() if gate.opened_at)

    async def _find_down(self, tx: Transaction, now: datetime) -> None:
        """Report what this process sees of failing providers, and judge what all of them see."""
        for slug, window in sorted(self._windows.items()):
            tally = window.tally(monotonic())
            if tally[1] or (slug in self._reported and tally[0]):
                await gates.report(tx, slug, self._process_id, tally, now=now)
        tallies = await gates.tallies(tx, since=now - REPORT_COUNTS)
        self._reported = set(tallies)
        for slug, seen in sorted(tallies.items()):
            gate = self._gates.get(slug)
            if (gate is None or gate.opened_at is None) and is_down(seen, self._rules):
                because = f"{seen.failures} of {seen.attempts} attempts failed within a minute"
                wait = self._rules.first_probe
                if await gates.open_gate(tx, slug, because, wait, now=now):
                    self._telemetry.provider_down(slug, because)
                await gates.forget_reports(tx, slug, before=now - self._rules.window)
                self._windows.pop(slug, None)
