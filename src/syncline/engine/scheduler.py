"""The tick: lock what may be due, plan it, and insert the jobs with their metadata."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from syncline.clock import Clock, Dice, monotonic, new_id
from syncline.engine.wakeup import Wakeup
from syncline.policy.schedule import (
    Candidate,
    RunPlan,
    next_slot_at,
    plan_run,
    read_sync,
)
from syncline.settings import SchedulerSettings
from syncline.store import connections, jobs, schedule
from syncline.store.pool import Pool, Transaction
from syncline.store.schedule import SavedPlan
from syncline.telemetry import Telemetry

SILENCE = timedelta(days=1)


@dataclass(slots=True)
class TickReport:
    """What one pass did; `skipped` are connections whose job the guard already held."""

    scheduled: int = 0
    skipped: int = 0
    overdue: int = 0

    @property
    def due(self) -> int:
        return self.scheduled + self.skipped


@dataclass(slots=True)
class Decisions:
    """What a batch of candidates comes to."""

    plans: list[SavedPlan] = field(default_factory=list)
    later: list[tuple[UUID, datetime, str | None]] = field(default_factory=list)
    # Where a queued interval job belongs, at the latest, if the interval was changed.
    pulls: list[tuple[UUID, datetime]] = field(default_factory=list)
    held: int = 0


class Scheduler:
    """Ticks; any number of processes may do so at once."""

    def __init__(
        self,
        pool: Pool,
        settings: SchedulerSettings,
        clock: Clock,
        dice: Dice,
        telemetry: Telemetry,
        wakeup: Wakeup,
    ) -> None:
        self._pool = pool
        self._settings = settings
        self._rules = settings.rules
        self._clock = clock
        self._dice = dice
        self._telemetry = telemetry
        self._wakeup = wakeup
        self._stopping = False
        self._id = new_id()

    def stop(self) -> None:
        """Let the batch in progress end; begin no other."""
        self._stopping = True

    async def leave(self) -> None:
        """Say that this scheduler ticks no more."""
        async with self._pool.transaction() as tx:
            now = await self._clock.now(tx)
            await schedule.forget_scheduler(tx, self._id, silent_since=now - SILENCE)
        self._stopping, self._id = False, new_id()

    async def step(self) -> timedelta:
        """Tick, and return the time to the next tick."""
        began = monotonic()
        await self.tick()
        took = timedelta(seconds=monotonic() - began)
        return max(self._settings.tick_interval - took, timedelta())

    async def tick(self) -> TickReport:
        """Walk all connections that are due, in batches of one transaction each."""
        report = TickReport()
        began = monotonic()
        with self._telemetry.tick():
            async with self._pool.transaction() as tx:
                now = await self._clock.now(tx)
                await schedule.beat(tx, self._id, now=now)
                report.overdue = await schedule.count_overdue(tx, self._rules, now=now)
            for walk in (self._tidy_left, self._plan_edited, self._plan_due):
                await walk(now, report)
            if report.scheduled and self._wakeup.is_on:
                async with self._pool.transaction() as tx:
                    await self._wakeup.notify(tx)
            self._telemetry.tick_finished(
                due=report.due,
                scheduled=report.scheduled,
                skipped=report.skipped,
                overdue=report.overdue,
                duration=timedelta(seconds=monotonic() - began),
            )
        return report

    async def _tidy_left(self, now: datetime, report: TickReport) -> None:  # noqa: ARG002
        """Cancel the queued jobs of connections that left active by plain SQL."""
        more = True
        while more and not self._stopping:
            async with self._pool.transaction() as tx:
                left = await schedule.lock_left(tx, limit=self._settings.batch_size)
                if left:
                    await jobs.cancel_queued(tx, left, now=now)
                    await connections.look_at_once(tx, left)
                more = len(left) == self._settings.batch_size

    async def _plan_edited(self, now: datetime, report: TickReport) -> None:
        """Plan the connections whose interval was changed, by whatever way."""
        after, more = UUID(int=0), True
        while more and not self._stopping:
            plans: Sequence[RunPlan] = ()
            async with self._pool.transaction() as tx:
                locked = await schedule.lock_edited(
                    tx, after=after, limit=self._settings.batch_size
                )
                if locked:
                    after = locked[-1]
                    plans = await self._plan_batch(tx, locked, now, report, edited=True)
                more = len(locked) == self._settings.batch_size
            self._tell(plans, report)

    async def _plan_due(self, now: datetime, report: TickReport) -> None:
        """Plan the connections whose slot comes before the horizon."""
        horizon = now + self._settings.lookahead
        after, more = schedule.BEFORE_ALL, True
        while more and not self._stopping:
            plans: Sequence[RunPlan] = ()
            async with self._pool.transaction() as tx:
                locked = await schedule.lock_due(
                    tx, horizon=horizon, after=after, limit=self._settings.batch_size
                )
                if locked:
                    after = locked[-1]
                    plans = await self._plan_batch(tx, [id_ for _, id_ in locked], now, report)
                more = len(locked) == self._settings.batch_size
            self._tell(plans, report)

    async def _plan_batch(
        self,
        tx: Transaction,
        locked: Sequence[UUID],
        now: datetime,
        report: TickReport,
        *,
        edited: bool = False,
    ) -> Sequence[RunPlan]:
        """Read, decide and write one batch of locked connections; return what was scheduled."""
        candidates = await schedule.read_candidates(tx, locked)
        decisions = self._decide(candidates, now)
        plans = [saved.plan for saved in decisions.plans]
        inserted: set[UUID] = set()
        if plans:
            inserted = await jobs.enqueue_planned(tx, plans, [new_id() for _ in plans])
        saved = [saved for saved in decisions.plans if saved.plan.connection_id in inserted]
        for skipped in decisions.plans:
            if skipped.plan.connection_id not in inserted:
                plan = skipped.plan
                decisions.later.append(
                    (plan.connection_id, now + plan.interval, skipped.interval_stored)
                )
        if saved:
            await schedule.save_plans(tx, saved, now=now)
        if decisions.later:
            await schedule.look_later(tx, decisions.later)
        if edited and decisions.pulls:
            await jobs.pull_forward(tx, decisions.pulls)
        report.skipped += decisions.held + len(plans) - len(saved)
        return [one.plan for one in saved]

    def _decide(self, candidates: Sequence[Candidate], now: datetime) -> Decisions:
        horizon = now + self._settings.lookahead
        decisions = Decisions()
        for candidate in candidates:
            options = read_sync(candidate.stored, self._rules)
            for complaint in options.complaints:
                self._telemetry.bad_metadata(
                    candidate.connection_id, complaint.key, complaint.reason
                )
            slot_at = next_slot_at(candidate, options, now)
            stored = candidate.stored.interval_seconds
            if candidate.has_pending_job:
                decisions.held += slot_at <= horizon
                decisions.later.append((candidate.connection_id, now + options.interval, stored))
                if candidate.last_finished_at is not None:
                    earliest = candidate.last_finished_at + options.interval
                    decisions.pulls.append((candidate.connection_id, max(now, earliest)))
            elif slot_at > horizon:
                decisions.later.append((candidate.connection_id, slot_at, stored))
            else:
                plan = plan_run(candidate, options, self._rules, now, self._dice.roll())
                decisions.plans.append(SavedPlan(plan, stored, repair=options.interval_is_bad))
        return decisions

    def _tell(self, plans: Sequence[RunPlan], report: TickReport) -> None:
        """Count what the transaction committed."""
        report.scheduled += len(plans)
        for plan in plans:
            self._telemetry.job_scheduled(
                plan,
                jitter_pct_min=float(self._rules.jitter_pct_min),
                jitter_pct_max=float(self._rules.jitter_pct_max),
            )
