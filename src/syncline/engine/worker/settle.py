"""Settle attempts in one transaction: close jobs, store signals and cursors, queue follow-ups."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from syncline.clock import new_id
from syncline.engine.context import EngineContext
from syncline.model import ConnectionStatus, JobStatus, JobType
from syncline.policy.outcome import (
    Cancelled,
    Ending,
    Failed,
    FailureRules,
    Outcome,
    PriorFailures,
    Released,
    Retry,
    Succeeded,
    judge,
)
from syncline.sdk.page import NOTHING_NEW, Page
from syncline.settings import ExecutorSettings
from syncline.store.data import attempts, connections, signals
from syncline.store.data.attempts import AttemptReport, FailedAttempt
from syncline.store.data.connections import Progress
from syncline.store.errors import expect
from syncline.store.pool import Transaction
from syncline.store.queue import jobs
from syncline.store.queue.claims import Claim
from syncline.store.queue.jobs import Closing, FollowUp, RerunRequest
from syncline.text import rfc3339

ACTIVE = ConnectionStatus.ACTIVE
MOST_ATTEMPTS, MOST_LAPSES = 2**31 - 1, 2**15 - 1  # the largest values of their columns


@dataclass(slots=True)
class Settlement:
    """An attempt to be settled; once it is written, also what came of it."""

    claim: Claim
    ending: Ending
    report: AttemptReport | None = None  # of the process that ran it, if it failed
    brought: str | None = None  # what the run brought, as JSON
    outcome: Outcome | None = None
    connection_is_active: bool = False
    rerun: RerunRequest | None = None
    follow_ups: list[FollowUp] = field(default_factory=list)
    cursor_was_moved: bool = False  # by a person or another run, during the attempt
    is_blocked: bool = False  # another transaction holds its rows: nothing was written
    settled_at: datetime | None = None
    closing: Closing | None = None  # what is written on the job

    @property
    def wait(self) -> timedelta | None:
        """How long the job waits for its next attempt; None if it does not wait."""
        if isinstance(self.outcome, Retry) and self.outcome.retry_after and self.settled_at:
            return self.outcome.retry_after - self.settled_at
        return None

    @property
    def page(self) -> Page:
        """What the attempt returned; an empty page if it returned none."""
        return self.outcome.page if isinstance(self.outcome, Succeeded) else NOTHING_NEW

    @property
    def is_first_completion(self) -> bool:
        """Whether the connection completed its first run."""
        closing = self.closing
        if closing is None or not _is_first_sync(self.claim):
            return False
        return closing.finished_at is not None and closing.counts_as_last

    @property
    def is_fenced(self) -> bool:
        """Whether the job was no longer ours, so nothing was written for it."""
        return self.rerun is None


class Settler:
    """Writes the outcomes of attempts."""

    def __init__(self, context: EngineContext) -> None:
        self._pool = context.pool
        self._settings = context.settings
        self._clock = context.clock
        self._dice = context.dice

    @property
    def server_answered_at(self) -> float:
        """When the server last answered, by this process's clock."""
        return self._pool.answered_at

    async def settle(self, group: Sequence[Settlement], *, lock_jobs: bool = False) -> None:
        """Settle attempts of different connections in one transaction.

        It does not wait for locks on connections: if another transaction holds one, its attempt
        is marked as blocked and must be settled later. With `lock_jobs` the same goes for jobs,
        at the cost of one more statement.
        """
        async with self._pool.transaction() as tx:
            await self._settle_in(tx, group, lock_jobs=lock_jobs)

    async def settle_retrying(self, group: Sequence[Settlement]) -> None:
        """Settle as above with `lock_jobs`, and try again after passing errors."""
        await self._pool.retrying(lambda tx: self._settle_in(tx, group, lock_jobs=True))

    async def settle_empty(self, empty: Sequence[Claim]) -> set[UUID]:
        """Close jobs whose pages are empty; return the ids of those that need a full settle.

        Such a run touches nothing but its job, so its connection is not locked.
        """
        ids, tokens = [claim.id for claim in empty], [claim.lease_token for claim in empty]
        async with self._pool.statement() as tx:
            now = self._clock.instant()
            return await jobs.close_empty(tx, ids, tokens, now=now)

    async def settle_pages(self, pages: Sequence[tuple[Claim, Page, str | None]]) -> set[UUID]:
        """Settle runs that returned a page and what they brought, all in the usual way.

        Return the ids of the jobs that need a full settle: all of them if another transaction
        holds a connection or one has left `active`; else those that are no longer ours, ended
        ahead of their slot, or are to run again. The usual way makes few objects per run.
        """
        ids = [claim.id for claim, _, _ in pages]
        tokens = [claim.lease_token for claim, _, _ in pages]
        brought = [one for _, _, one in pages]
        now = self._clock.instant()
        async with self._pool.transaction() as tx:
            if not await connections.lock_active(tx, [one.connection_id for one, _, _ in pages]):
                return set(ids)
            left = await jobs.close_pages(tx, ids, tokens, brought, now=now)
            if left:
                pages = [one for one in pages if one[0].id not in left]
            moved = await self._store(
                tx, [(claim, page, _is_first_sync(claim)) for claim, page, _ in pages], now
            )
            follow_ups = [
                _follow_page(claim, page, cursor_was_moved=claim.connection_id in moved)
                for claim, page, _ in pages
                if page.has_more
            ]
            await _enqueue(tx, follow_ups, now)
        return left

    async def _settle_in(
        self, tx: Transaction, group: Sequence[Settlement], *, lock_jobs: bool
    ) -> None:
        locked, blocked = await connections.lock_free(
            tx, [one.claim.connection_id for one in group]
        )
        if lock_jobs:
            blocked |= await jobs.lock_free(tx, [one.claim.id for one in group])
        now = await self._clock.now(tx)
        for one in group:
            one.is_blocked = not blocked.isdisjoint((one.claim.connection_id, one.claim.id))
        free = [one for one in group if one.claim.connection_id in locked and not one.is_blocked]
        for one in free:
            one.settled_at, one.outcome = now, self._judge(one, now)
            one.connection_is_active = locked[one.claim.connection_id].status == ACTIVE
            one.follow_ups, one.cursor_was_moved = [], False
            one.closing = closed_job(one, now)
        reruns = await jobs.close(tx, [one.closing for one in free if one.closing])
        for one in group:
            one.rerun = reruns.get(one.claim.id)  # a blocked one is judged later
        ours = [one for one in free if not one.is_fenced]
        moved = await self._store(
            tx, [(one.claim, one.page, one.is_first_completion) for one in ours], now
        )
        for one in ours:
            one.cursor_was_moved = one.claim.connection_id in moved
        await _keep_attempts(tx, ours, now)
        await _move_connections(tx, ours, now)
        await _queue_follow_ups(tx, ours, now)

    async def _store(
        self, tx: Transaction, pages: Sequence[tuple[Claim, Page, bool]], now: datetime | None
    ) -> set[UUID]:
        """Store the signals and cursors of pages, each with whether it is a first completion.

        Return the connections whose cursor was moved during the attempt.
        """
        columns = signals.Columns()
        progress: list[Progress] = []
        for claim, page, is_first in pages:
            if page.kinds:
                columns.add(claim, page, new_id.many(page.signal_count))
            if page.next_cursor is not None or is_first:
                overwrites = overwrites_cursor(claim, self._settings.executor)
                progress.append(
                    Progress(
                        claim.connection_id,
                        page.next_cursor,
                        claim.stored_cursor,
                        overwrites,
                        is_first,
                    )
                )
        if columns.ids:
            await signals.insert(tx, columns)
        return await connections.save_progress(tx, progress, now=now) if progress else set()

    def _judge(self, one: Settlement, now: datetime) -> Outcome:
        if isinstance(one.ending, Page):
            return Succeeded(one.ending)  # most attempts; no rules are needed
        rules = FailureRules(
            self._settings.rate_limit.backoff(one.claim.provider_slug),
            self._settings.executor.max_attempts,
        )
        prior = PriorFailures(one.claim.attempts, one.claim.lapses)
        return judge(one.ending, rules, prior, now=now, roll=self._dice.roll())


def _is_first_sync(claim: Claim) -> bool:
    return claim.is_first and claim.job_type == JobType.INCREMENTAL


def overwrites_cursor(claim: Claim, settings: ExecutorSettings) -> bool:
    """Return whether a page's cursor replaces the stored one, even if that was moved meanwhile.

    If job types run side by side, an incremental sync may move it during a full one, which wins.
    """
    return claim.job_type == JobType.FULL and settings.single_flight == "job_type"


def closed_job(one: Settlement, now: datetime) -> Closing:
    """Return the columns that the outcome leaves on the job."""
    claim = one.claim
    closing = Closing(claim.id, claim.lease_token, JobStatus.QUEUED, claim.attempts)
    match one.outcome:
        case Succeeded():
            closing.status, closing.brought = JobStatus.SUCCEEDED, one.brought
        case Retry(error, _, retry_after, lapses):
            closing.attempts = min(claim.attempts + 1, MOST_ATTEMPTS)
            closing.error, closing.retry_after, closing.lapses = error, retry_after, lapses
        case Failed(error, lapses=lapses):
            closing.status = JobStatus.FAILED
            closing.attempts = min(claim.attempts + 1, MOST_ATTEMPTS)
            closing.error, closing.lapses = error, min(lapses, MOST_LAPSES)
        case Released(until):
            closing.lapses, closing.retry_after = claim.lapses, until
        case Cancelled():
            closing.status = JobStatus.CANCELLED
            closing.counts_as_last = claim.attempts > 0
    if closing.status == JobStatus.QUEUED and not one.connection_is_active:
        closing.status, closing.retry_after = JobStatus.CANCELLED, None
    if closing.status != JobStatus.QUEUED:
        closing.finished_at = now
    return closing


async def _keep_attempts(tx: Transaction, ours: Sequence[Settlement], now: datetime) -> None:
    """Keep what is known of the attempts that failed."""
    failed = [
        FailedAttempt(new_id(), one.claim, one.outcome.error, one.report or attempts.UNKNOWN)
        for one in ours
        if isinstance(one.outcome, Retry | Failed)
    ]
    if failed:
        await attempts.keep(tx, failed, now=now)


async def _move_connections(tx: Transaction, ours: Sequence[Settlement], now: datetime) -> None:
    """Take connections out of `active` whose job failed for good, and cancel their queued jobs."""
    moves: list[tuple[UUID, str, str | None]] = []
    for one in ours:
        match one.outcome:
            case Failed(connection_status=status) if status and one.connection_is_active:
                reason = json.dumps(_reason(one, one.outcome, now))
                moves.append((one.claim.connection_id, status, reason))
                one.connection_is_active = False
    if moves:
        expect(await connections.set_status(tx, moves, now=now), len(moves), "statuses")
        await jobs.cancel_queued(tx, [move[0] for move in moves], now=now)
    earlier = [one.claim.connection_id for one in ours if _may_be_due_earlier(one, now)]
    if earlier:
        await connections.check_now(tx, earlier)


def _may_be_due_earlier(one: Settlement, now: datetime) -> bool:
    """Return whether the next slot may come before the tick's next check.

    The tick checks one interval after the slot. A job that was pulled forward and ended before its
    slot, or that was cancelled before it ran, makes the next one due earlier.
    """
    before_its_slot = one.claim.slot_ahead is not None and now < one.claim.slot_ahead
    return before_its_slot or isinstance(one.outcome, Cancelled)


async def _queue_follow_ups(tx: Transaction, ours: Sequence[Settlement], now: datetime) -> None:
    for one in ours:
        one.follow_ups = list(_follow_ups(one))
    await _enqueue(tx, [job for one in ours for job in one.follow_ups], now)


async def _enqueue(tx: Transaction, follow_ups: Sequence[FollowUp], now: datetime | None) -> None:
    if follow_ups:
        touched = await jobs.enqueue_follow_ups(tx, follow_ups, now=now)
        expect(touched, len(follow_ups), "follow-ups")


def _follow_ups(one: Settlement) -> list[FollowUp]:
    """Return the jobs to queue next: one for the rest of the pages, one for a requested rerun."""
    claim, rerun = one.claim, one.rerun
    jobs_by_type: dict[str, FollowUp] = {}
    if isinstance(one.outcome, Succeeded) and one.outcome.page.has_more:
        more = _follow_page(claim, one.outcome.page, cursor_was_moved=one.cursor_was_moved)
        jobs_by_type[JobType.INCREMENTAL] = more
    ended = isinstance(one.outcome, Succeeded) or (
        isinstance(one.outcome, Failed) and one.connection_is_active
    )
    if ended and rerun is not None and rerun.priority is not None:
        next_job = _follow_up(claim, claim.job_type, rerun.priority, rerun.cursor)
        if same := jobs_by_type.get(claim.job_type):
            # A full sync's cursor is behind this page's; starting there covers both.
            next_job.cursor = next_job.cursor or same.cursor
            next_job.priority = max(next_job.priority, same.priority)
        jobs_by_type[claim.job_type] = next_job
    if not one.connection_is_active:
        for job in jobs_by_type.values():
            job.status = JobStatus.CANCELLED
    return list(jobs_by_type.values())


def _follow_page(claim: Claim, page: Page, *, cursor_was_moved: bool) -> FollowUp:
    """Return the job for the pages after this one.

    If the stored cursor was moved meanwhile, it continues from there.
    """
    cursor = None if cursor_was_moved else page.next_cursor
    return _follow_up(claim, JobType.INCREMENTAL, claim.priority, cursor)


def _follow_up(claim: Claim, job_type: str, priority: int, cursor: str | None) -> FollowUp:
    return FollowUp(
        id=new_id(),
        tenant_id=claim.tenant_id,
        provider_slug=claim.provider_slug,
        connection_id=claim.connection_id,
        job_type=job_type,
        priority=priority,
        cursor=cursor,
        status=JobStatus.QUEUED,
    )


def _reason(one: Settlement, outcome: Failed, now: datetime) -> dict[str, Any]:
    return {
        "why": outcome.reason or outcome.error_class,
        "since": rfc3339(now),
        "evidence": {"job_id": str(one.claim.id), "error": json.loads(outcome.error)},
    }
