"""The tick: lock connections that may be due, read them, plan their runs, write the plans."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from syncline.clock import monotonic, new_id
from syncline.engine.context import EngineContext
from syncline.engine.scheduler.clock_repair import ClockRepair
from syncline.engine.wakeup import Wakeup
from syncline.policy.schedule import (
    Candidate,
    Pull,
    RunPlan,
    next_slot_at,
    plan_run,
    pull_to_new_interval,
    read_sync,
)
from syncline.store.data import connections
from syncline.store.errors import expect, is_held, is_timeout, lies_in_rows
from syncline.store.pool import Transaction
from syncline.store.queue import jobs, schedule, schedulers, tenant_pauses
from syncline.store.queue.schedule import DueConnections, LockedBatch, LockNext

PARTS = 8  # a batch that took too long is split into this many
WALKERS = 4  # one plans while the rows of the others are written, or wait for the disk
MOST_BLOCKED = 1000  # connections that a tick records as locked by other transactions
SILENCE = timedelta(days=1)
# A person's INSERT of a job waits for the connection that the tick has locked, and the tick waits
# for that job. The tick gives up before Postgres (after a second) reports a deadlock.
LOCK_PATIENCE = timedelta(seconds=0.5)
STATEMENT_PATIENCE = timedelta(seconds=4)  # less than the command timeout, which loses the session


@dataclass(slots=True)
class TickReport:
    """What one tick did.

    `skipped` counts due connections that already had a pending job, `overdue` those that had none
    although their slot had passed, and `blocked` those that another transaction had locked.
    """

    scheduled: int = 0
    skipped: int = 0
    overdue: int = 0
    blocked: list[UUID] = field(default_factory=list)

    @property
    def due(self) -> int:
        return self.scheduled + self.skipped


class Scheduler:
    """Ticks; any number of processes may do so at once."""

    def __init__(self, context: EngineContext, wakeup: Wakeup) -> None:
        self._context = context
        self._settings = context.settings.scheduler
        self._wakeup = wakeup
        self._stopping = asyncio.Event()
        self._clock_repair = ClockRepair(context, self._stopping)
        self._id = new_id()

    def stop(self) -> None:
        """Let the batch in progress end; begin no other until `start`."""
        self._stopping.set()

    def start(self) -> None:
        self._stopping.clear()

    async def leave(self) -> None:
        """Remove this scheduler from the registry."""
        left, self._id = self._id, new_id()
        async with self._context.pool.transaction() as tx:
            now = await self._context.clock.now(tx)
            await schedulers.forget(tx, left, silent_since=now - SILENCE)

    async def step(self) -> timedelta:
        """Tick, and return the time to the next tick."""
        began = monotonic()
        await self.tick()
        took = timedelta(seconds=monotonic() - began)
        return max(self._settings.tick_interval - took, timedelta())

    async def tick(self) -> TickReport:
        """Plan every connection that is due, in batches of one transaction each."""
        telemetry, began = self._context.telemetry, monotonic()
        with telemetry.tick():
            now = await self._clock_repair.begin_tick()
            report = await Tick(self._context, now, self._stopping).run()
            await self._end_tick(now, report)
            telemetry.tick_finished(
                due=report.due,
                scheduled=report.scheduled,
                skipped=report.skipped,
                overdue=report.overdue,
                duration=timedelta(seconds=monotonic() - began),
            )
        return report

    async def _end_tick(self, now: datetime, report: TickReport) -> None:
        """Wake the workers, and record the tick unless a stop cut it short."""
        async with self._context.pool.transaction() as tx:
            if report.scheduled:
                await self._wakeup.notify(tx)
            if not self._stopping.is_set():
                silent_since = now - 2 * self._settings.tick_interval
                held = report.blocked[:MOST_BLOCKED]
                await schedulers.beat(tx, self._id, now=now, silent_since=silent_since, held=held)


@dataclass(slots=True)
class Decisions:
    """What is to be written for a batch of candidates."""

    plans: list[RunPlan] = field(default_factory=list)
    next_checks: list[tuple[UUID, datetime]] = field(default_factory=list)
    pulls: list[Pull] = field(default_factory=list)
    pending: int = 0  # due connections whose job is pending already
    overdue: int = 0


@dataclass(frozen=True, slots=True)
class Batch:
    """Plans saved, connections skipped (job pending), and overdue connections, including those
    locked elsewhere."""

    plans: Sequence[RunPlan] = ()
    skipped: int = 0
    overdue: int = 0


Work = Callable[[Transaction, LockedBatch], Awaitable[Batch]]


class Tick:
    """One pass over all connections, with one `now` for all of them."""

    def __init__(self, context: EngineContext, now: datetime, stopping: asyncio.Event) -> None:
        self._pool = context.pool
        self._telemetry = context.telemetry
        self._dice = context.dice
        self._settings = context.settings.scheduler
        self._rules = self._settings.rules
        self._now = now
        self._horizon = now + self._settings.lookahead
        self._stopping = stopping
        self._report = TickReport()

    async def run(self) -> TickReport:
        await self._walk(schedule.lock_left, self._cancel_queued)
        await self._walk(schedule.lock_edited, self._plan)
        await self._count_still_edited()
        await self._plan_due()
        return self._report

    async def _plan_due(self) -> None:
        """Plan the connections whose check comes before the horizon, a chapter at a time.

        Those of paused tenants stay due, so that the first tick after a pause plans them.
        """
        after = None
        async with self._pool.transaction() as tx:
            paused = [pause.tenant_id for pause in await tenant_pauses.read(tx)]
        while not self._stopping.is_set():
            async with self._pool.transaction() as tx:
                due = await schedule.next_due(tx, until=self._horizon, after=after, paused=paused)
            if due is None:
                return
            await self._plan_chapter(due.ids)
            after = due.after

    async def _plan_chapter(self, ids: list[UUID]) -> None:
        """Plan the first batch, then share the rest between walkers.

        Each takes the next batch that is left: one plans while another's rows are written.
        """
        size = self._settings.batch_size
        batches = (ids[start : start + size] for start in range(size, len(ids), size))

        async def walk_on() -> None:
            for batch in batches:
                await self._walk(DueConnections(batch, self._horizon).lock, self._plan)

        await self._walk(DueConnections(ids[:size], self._horizon).lock, self._plan)
        walks = [walk_on() for _ in range(min(WALKERS, -(-len(ids[size:]) // size)))]
        for ended in await asyncio.gather(*walks, return_exceptions=True):
            if isinstance(ended, BaseException):
                raise ended

    async def _walk(self, lock_next: LockNext, work: Work) -> None:
        """Lock and process batch after batch, each in one transaction.

        A batch that fails because of a bad row or a lock is repeated row by row. One that takes
        the server too long is repeated in smaller parts.
        """
        after = smaller_until = schedule.BEFORE_ALL
        size = limit = self._settings.batch_size
        while not self._stopping.is_set():
            limit = limit if after < smaller_until else size
            locked: LockedBatch | None = None
            try:
                async with self._pool.transaction() as tx:
                    await tx.limit(lock=LOCK_PATIENCE, statement=STATEMENT_PATIENCE)
                    locked = await lock_next(tx, after=after, limit=limit)
                    batch = await work(tx, locked)
                self._record(locked, batch)
            except Exception as error:
                if locked is None or not (lies_in_rows(error) or is_timeout(error)):
                    raise
                if len(locked.ids) > 1:
                    smaller_until = max(smaller_until, locked.last_scanned)
                    limit = max(len(locked.ids) // PARTS, 1) if is_timeout(error) else 1
                    continue
                await self._pass_over(locked.ids, error)
            if not locked.has_more:
                return
            after = locked.last_scanned

    async def _plan(self, tx: Transaction, locked: LockedBatch) -> Batch:
        """Read, plan and write a batch of locked connections."""
        overdue = await schedule.count_overdue(tx, locked.skipped, self._rules, now=self._now)
        if not locked.ids:
            return Batch(overdue=overdue)
        candidates = await schedule.read_candidates(tx, locked.ids)
        decisions = self._decide(candidates)
        saved = await self._write(tx, decisions)
        skipped = decisions.pending + len(decisions.plans) - len(saved)
        return Batch(saved, skipped, overdue + decisions.overdue)

    def _decide(self, candidates: Iterable[Candidate]) -> Decisions:
        """Apply the policy to each candidate, and report invalid values."""
        now, rules, decisions = self._now, self._rules, Decisions()
        for candidate in candidates:
            options = read_sync(candidate.stored, rules)
            for complaint in options.complaints:
                self._telemetry.bad_metadata(
                    candidate.connection_id, complaint.key, complaint.reason
                )
            if candidate.has_pending_job:
                # Check again when the job may have run; a new interval may pull it forward.
                decisions.pending += next_slot_at(candidate, options, now) <= self._horizon
                decisions.next_checks.append((candidate.connection_id, now + options.check_after))
                pull = pull_to_new_interval(candidate, options, rules, now)
                if pull is not None:
                    decisions.pulls.append(pull)
                continue
            plan = plan_run(candidate, options, rules, now, self._dice.roll())
            decisions.overdue += plan.slot_at <= now
            if plan.slot_at <= self._horizon:
                decisions.plans.append(plan)
            else:
                decisions.next_checks.append((plan.connection_id, plan.slot_at))
        return decisions

    async def _write(self, tx: Transaction, decisions: Decisions) -> Sequence[RunPlan]:
        """Insert the jobs and save the plans; return the plans that got their job."""
        now, plans, next_checks = self._now, decisions.plans, decisions.next_checks
        saved: Sequence[RunPlan] = ()
        if plans:
            saved = await jobs.enqueue_planned(tx, plans, new_id.many(len(plans)))
        if saved:
            expect(await schedule.save_plans(tx, saved, now=now), len(saved), "plans")
        if len(saved) < len(plans):
            done = {plan.connection_id for plan in saved}
            next_checks += [
                (plan.connection_id, now + plan.check_after)
                for plan in plans
                if plan.connection_id not in done
            ]
        if next_checks:
            expect(await schedule.check_later(tx, next_checks), len(next_checks), "next checks")
        if decisions.pulls:
            pulled = await jobs.pull_forward(tx, decisions.pulls)
            published = await schedule.publish_next_runs(tx, pulled, now=now) if pulled else 0
            expect(published, len(pulled), "next runs")
        return saved

    async def _cancel_queued(self, tx: Transaction, locked: LockedBatch) -> Batch:
        """Cancel the queued jobs of connections that left `active` by plain SQL."""
        if left := locked.ids:
            await jobs.cancel_queued(tx, left, now=self._now)
            expect(await connections.set_aside(tx, left), len(left), "connections")
        return Batch()

    async def _count_still_edited(self) -> None:
        """Count the edited connections that another transaction had locked."""
        async with self._pool.transaction() as tx:
            left = await schedule.still_edited(tx, horizon=self._horizon)
            overdue = await schedule.count_overdue(tx, left, self._rules, now=self._now)
        self._report.overdue += overdue
        self._report.blocked += left

    async def _pass_over(self, ids: Sequence[UUID], error: Exception) -> None:
        """Leave a connection that could not be planned for the next tick."""
        self._telemetry.loop_failed("scheduler", error, timedelta())
        async with self._pool.transaction() as tx:
            overdue = await schedule.count_overdue(tx, ids, self._rules, now=self._now)
        self._report.overdue += overdue
        self._report.blocked += ids if is_held(error) else ()

    def _record(self, locked: LockedBatch, batch: Batch) -> None:
        """Count what the transaction committed."""
        report = self._report
        report.scheduled += len(batch.plans)
        report.skipped += batch.skipped
        report.overdue += batch.overdue
        report.blocked += locked.skipped
        self._telemetry.jobs_scheduled(
            batch.plans,
            jitter_pct_min=self._rules.jitter_pct_min,
            jitter_pct_max=self._rules.jitter_pct_max,
        )
