"""The tick: lock what may be due, plan it, and insert the jobs with their metadata."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from uuid import UUID

from syncline.clock import Clock, Dice, monotonic, new_id
from syncline.engine.scheduler.plans import Planner
from syncline.engine.wakeup import Wakeup
from syncline.policy.schedule import RunPlan
from syncline.settings import Settings
from syncline.store.data import connections
from syncline.store.pool import Pool, Transaction, expect, is_held, is_timeout, lies_in_rows
from syncline.store.queue import jobs, schedule, schedulers
from syncline.store.queue.jobs import Latest
from syncline.store.queue.schedule import LockedBatch
from syncline.telemetry.engine import Telemetry

PARTS = 8  # of a batch that took too long
WALKERS = 4  # one plans while the rows of the others are written, or wait for the disk
MOST_HELD = 1000  # connections that a tick notes as held by somebody else
SILENCE = timedelta(days=1)
AFTERMATH = timedelta(minutes=1)  # longer than a transaction of ours lasts
NEVER = datetime.min.replace(tzinfo=UTC)
# Whoever inserts a job by hand waits for the connection that the tick has locked, and the tick for
# the job; the tick gives way before Postgres (after a second) would call it a deadlock.
LOCK_PATIENCE = timedelta(seconds=0.5)
STATEMENT_PATIENCE = timedelta(seconds=4)  # less than the command timeout, after which all is lost

LockNext = Callable[..., Awaitable[LockedBatch]]
Work = Callable[[Transaction, LockedBatch], Awaitable["Batch"]]


@dataclass(slots=True)
class TickReport:
    """What one pass did; `skipped` are connections whose job the guard already held, and `held`
    those that somebody else had locked, or that were due no more."""

    scheduled: int = 0
    skipped: int = 0
    overdue: int = 0
    held: list[UUID] = field(default_factory=list)

    @property
    def due(self) -> int:
        return self.scheduled + self.skipped


@dataclass(frozen=True, slots=True)
class Batch:
    """What was scheduled, how many connections the guard held a job for, and how many had none
    though their slot was past, before: those counted that somebody else works on."""

    plans: Sequence[RunPlan] = ()
    skipped: int = 0
    overdue: int = 0


class Scheduler:
    """Ticks; any number of processes may do so at once."""

    def __init__(
        self,
        pool: Pool,
        settings: Settings,
        clock: Clock,
        dice: Dice,
        telemetry: Telemetry,
        wakeup: Wakeup,
    ) -> None:
        self._pool = pool
        self._settings = settings.scheduler
        self._rules = settings.scheduler.rules
        self._lease = settings.executor.lease
        self._longest_backoff = settings.rate_limit.longest_backoff
        self._clock = clock
        self._planner = Planner(settings.scheduler, dice, telemetry)
        self._telemetry = telemetry
        self._wakeup = wakeup
        self._stopping = False
        self._id = new_id()
        self._ahead_at = self._aftermath_ends_at = NEVER  # of a clock that stood ahead

    def stop(self) -> None:
        """Let the batch in progress end; begin no other until `start`."""
        self._stopping = True

    def start(self) -> None:
        """Let ticks walk again."""
        self._stopping = False

    async def leave(self) -> None:
        """Say that this scheduler ticks no more."""
        left, self._id = self._id, new_id()
        async with self._pool.transaction() as tx:
            now = await self._clock.now(tx)
            await schedulers.forget(tx, left, silent_since=now - SILENCE)

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
            now = await self._walk_all(report)
            await self._end_tick(now, report)
            self._telemetry.tick_finished(
                due=report.due,
                scheduled=report.scheduled,
                skipped=report.skipped,
                overdue=report.overdue,
                duration=timedelta(seconds=monotonic() - began),
            )
        return report

    async def _walk_all(self, report: TickReport) -> datetime:
        async with self._pool.transaction() as tx:
            now = await self._clock.now(tx)
            ahead_of = await self._look_ahead(tx, now)
        if ahead_of is not None:
            await self._undo_future(now, ahead_of)
        for walk in (self._tidy_left, self._plan_edited, self._plan_due):
            await walk(now, report)
        return now

    async def _look_ahead(self, tx: Transaction, now: datetime) -> datetime | None:
        """Return from when on connections were put off because the clock stood ahead; or None.

        A scheduler that ticked in the future shows it. Where none did, connections that are put
        off by more than the longest interval are looked at all the same. A row may be locked at
        that moment, or written by a transaction that began ahead and commits later; so for a
        while all that lies nearer to that time than to now is brought back again.
        """
        horizon, size = now + self._settings.lookahead, self._settings.batch_size
        longest = max(self._rules.default_interval, self._rules.maximum_interval)
        found = await schedule.bring_checks_back(tx, after=horizon + 2 * longest, limit=size)
        ahead_at = await schedulers.ticked_ahead(tx, after=horizon)
        if ahead_at is not None:
            self._ahead_at, self._aftermath_ends_at = ahead_at, now + AFTERMATH
        if ahead_at is not None or found == size:
            return horizon
        is_aftermath = now < self._aftermath_ends_at
        return max(horizon, now + (self._ahead_at - now) / 2) if is_aftermath else None

    async def _undo_future(self, now: datetime, ahead_of: datetime) -> None:
        """Bring back what was put off while the clock stood ahead."""
        horizon, size = now + self._settings.lookahead, self._settings.batch_size
        latest = Latest(horizon, now + self._longest_backoff, now + self._lease)
        work: tuple[Callable[[Transaction], Awaitable[int]], ...] = (
            partial(schedule.bring_checks_back, after=ahead_of, limit=size),
            partial(jobs.pull_back, latest=latest, now=now, limit=size),
        )
        for bring_back in work:
            found = size
            while found == size and not self._stopping:
                async with self._pool.transaction() as tx:
                    found = await bring_back(tx)
        async with self._pool.transaction() as tx:
            await schedulers.come_back(tx, after=horizon, now=now)

    async def _end_tick(self, now: datetime, report: TickReport) -> None:
        """Wake the workers, and note that everything due by now was seen, if it was."""
        async with self._pool.transaction() as tx:
            if report.scheduled:
                await self._wakeup.notify(tx)
            if not self._stopping:
                silent_since = now - 2 * self._settings.tick_interval
                held = report.held[:MOST_HELD]
                await schedulers.beat(tx, self._id, now=now, silent_since=silent_since, held=held)

    async def _tidy_left(self, now: datetime, report: TickReport) -> None:
        """Cancel the queued jobs of connections that left active by plain SQL."""

        async def cancel(tx: Transaction, locked: LockedBatch) -> Batch:
            if left := locked.ids:
                await jobs.cancel_queued(tx, left, now=now)
                expect(await connections.set_aside(tx, left), len(left), "connections")
            return Batch()

        await self._walk(schedule.lock_left, cancel, now, report)

    async def _plan_edited(self, now: datetime, report: TickReport) -> None:
        """Plan the connections whose interval was changed, by whatever way."""
        plan = partial(self._plan_batch, now=now)
        await self._walk(schedule.lock_edited, plan, now, report)
        async with self._pool.transaction() as tx:
            left = await schedule.still_edited(tx, horizon=now + self._settings.lookahead)
            report.overdue += await schedule.count_overdue(tx, left, self._rules, now=now)
        report.held += left

    async def _plan_due(self, now: datetime, report: TickReport) -> None:
        """Plan the connections whose slot comes before the horizon, a chapter at a time."""
        horizon, after = now + self._settings.lookahead, None
        while not self._stopping:
            async with self._pool.transaction() as tx:
                due = await schedule.next_due(tx, until=horizon, after=after)
            if due is None:
                return
            await self._plan_chapter(due.ids, horizon, now, report)
            after = due.after

    async def _plan_chapter(
        self, ids: list[UUID], horizon: datetime, now: datetime, report: TickReport
    ) -> None:
        """Share what goes beyond a batch between walkers, each of whom takes the next one left.

        One plans while another's rows are written, and none is left alone with the last.
        """
        size = self._settings.batch_size
        batches = (ids[start : start + size] for start in range(size, len(ids), size))

        async def walk(batch: list[UUID]) -> None:
            lock_due = partial(schedule.lock_due, among=batch, horizon=horizon)
            await self._walk(lock_due, partial(self._plan_batch, now=now), now, report)

        async def walk_on() -> None:
            for batch in batches:
                await walk(batch)

        await walk(ids[:size])
        walks = [walk_on() for _ in range(min(WALKERS, -(-len(ids[size:]) // size)))]
        for ended in await asyncio.gather(*walks, return_exceptions=True):
            if isinstance(ended, BaseException):
                raise ended

    async def _walk(
        self, lock_next: LockNext, work: Work, now: datetime, report: TickReport
    ) -> None:
        """Work batch by batch; one that somebody's row or lock spoils is done one by one, and one
        that is too much for the server in smaller parts."""
        after = smaller_until = schedule.BEFORE_ALL
        size = limit = self._settings.batch_size
        while not self._stopping:
            limit = limit if after < smaller_until else size
            locked: LockedBatch | None = None
            try:
                async with self._pool.transaction() as tx:
                    await tx.limit(lock=LOCK_PATIENCE, statement=STATEMENT_PATIENCE)
                    locked = await lock_next(tx, after=after, limit=limit)
                    batch = await work(tx, locked)
                self._tell(batch, report)
                report.held += locked.passed_by
            except Exception as error:
                if locked is None or not (lies_in_rows(error) or is_timeout(error)):
                    raise
                if len(locked.ids) > 1:
                    smaller_until = max(smaller_until, locked.until)
                    limit = len(locked.ids) // PARTS if is_timeout(error) else 1
                    limit = max(limit, 1)
                    continue
                self._telemetry.loop_failed("scheduler", error, timedelta())  # the next tick's turn
                async with self._pool.transaction() as tx:
                    spoilt = locked.ids
                    report.held += spoilt if is_held(error) else ()
                    report.overdue += await schedule.count_overdue(tx, spoilt, self._rules, now=now)
            if not locked.more:
                return
            after = locked.until

    async def _plan_batch(self, tx: Transaction, locked: LockedBatch, now: datetime) -> Batch:
        """Read, decide and write one batch of locked connections; the others are counted."""
        overdue = await schedule.count_overdue(tx, locked.passed_by, self._rules, now=now)
        if not locked.ids:
            return Batch(overdue=overdue)
        decisions = self._planner.decide(await schedule.read_candidates(tx, locked.ids), now)
        plans, later = decisions.plans, decisions.later
        saved: Sequence[RunPlan] = ()
        if plans:
            saved = await jobs.enqueue_planned(tx, plans, [new_id() for _ in plans])
        if saved:
            expect(await schedule.save_plans(tx, saved, now=now), len(saved), "plans")
        if len(saved) < len(plans):
            done = {plan.connection_id for plan in saved}
            later += [
                (plan.connection_id, now + plan.interval)
                for plan in plans
                if plan.connection_id not in done
            ]
        if later:
            expect(await schedule.check_later(tx, later), len(later), "looks")
        if decisions.pulls:
            pulled = await jobs.pull_forward(tx, decisions.pulls)
            published = await schedule.publish_next_runs(tx, pulled, now=now) if pulled else 0
            expect(published, len(pulled), "next runs")
        skipped = decisions.held + len(plans) - len(saved)
        return Batch(saved, skipped, overdue + decisions.overdue)

    def _tell(self, batch: Batch, report: TickReport) -> None:
        """Count what the transaction committed."""
        report.scheduled += len(batch.plans)
        report.skipped += batch.skipped
        report.overdue += batch.overdue
        self._telemetry.jobs_scheduled(
            batch.plans,
            jitter_pct_min=self._rules.jitter_pct_min,
            jitter_pct_max=self._rules.jitter_pct_max,
        )
