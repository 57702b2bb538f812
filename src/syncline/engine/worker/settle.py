"""Settle attempts: one transaction closes the jobs, stores their signals, keeps their cursors,
moves their connections and queues what comes next; or none of it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from syncline.clock import Clock, Dice, new_id
from syncline.model import ConnectionStatus, JobStatus, JobType
from syncline.policy.outcome import (
    Cancelled,
    Ending,
    Failed,
    FailureRules,
    Outcome,
    Released,
    Retry,
    Succeeded,
    judge,
)
from syncline.sdk.page import Page
from syncline.settings import ExecutorSettings, Settings
from syncline.store.data import connections, signals
from syncline.store.data.connections import Progress
from syncline.store.pool import Pool, Transaction, expect
from syncline.store.queue import jobs
from syncline.store.queue.claims import Claim
from syncline.store.queue.jobs import Closing, FollowUp, RerunRequest
from syncline.text import rfc3339

ACTIVE = ConnectionStatus.ACTIVE
MOST_ATTEMPTS, MOST_LAPSES = 2**31 - 1, 2**15 - 1  # what their columns hold


@dataclass(slots=True)
class Settlement:
    """An attempt to be settled, and, once judged and written, what became of it."""

    claim: Claim
    ending: Ending
    outcome: Outcome | None = None
    connection_is_active: bool = False
    rerun: RerunRequest | None = None
    follow_ups: list[FollowUp] = field(default_factory=list)
    cursor_was_moved: bool = False  # by somebody else, while the attempt went on
    is_held: bool = False  # its rows were, by somebody else: nothing was written for it yet
    settled_at: datetime | None = None
    completed_at: datetime | None = None  # where it is the connection's first completion

    @property
    def wait(self) -> timedelta | None:
        """How long the job has to wait for its next attempt, where it has to."""
        if isinstance(self.outcome, Retry) and self.outcome.retry_after and self.settled_at:
            return self.outcome.retry_after - self.settled_at
        return None

    @property
    def is_fenced(self) -> bool:
        """Whether the job was no longer ours, so that nothing was written for it."""
        return self.rerun is None


class Settler:
    def __init__(self, pool: Pool, settings: Settings, clock: Clock, dice: Dice) -> None:
        self._pool = pool
        self._settings = settings
        self._clock = clock
        self._dice = dice

    @property
    def server_answered_at(self) -> float:
        """When the server last did what was asked of it, by this process's clock."""
        return self._pool.answered_at

    async def settle(self, group: Sequence[Settlement], *, lock_jobs: bool = False) -> None:
        """Settle attempts of different connections in one transaction.

        It waits for nobody's lock on a connection: an attempt whose connection somebody holds is
        marked as held, and has to be settled later. With `lock_jobs` the same goes for jobs, for
        one statement more.
        """
        async with self._pool.transaction() as tx:
            await self._settle_in(tx, group, lock_jobs=lock_jobs)

    async def settle_retrying(self, group: Sequence[Settlement]) -> None:
        """Settle as above, waiting for nobody's lock, again while the error is a passing one."""
        await self._pool.retrying(lambda tx: self._settle_in(tx, group, lock_jobs=True))

    async def settle_empty(self, held: Sequence[Claim]) -> set[UUID]:
        """Close jobs whose pages are empty, and return those that there is more to do for.

        Such a run touches nothing but its job, so no connection need be locked for it.
        """
        ids, tokens = [claim.id for claim in held], [claim.lease_token for claim in held]
        async with self._pool.statement() as tx:
            return await jobs.close_empty(tx, ids, tokens, now=self._clock.instant())

    async def _settle_in(
        self, tx: Transaction, group: Sequence[Settlement], *, lock_jobs: bool
    ) -> None:
        locked, held_elsewhere = await connections.lock_free(
            tx, [one.claim.connection_id for one in group]
        )
        if lock_jobs:
            held_elsewhere |= await jobs.lock_free(tx, [one.claim.id for one in group])
        now = await self._clock.now(tx)
        for one in group:
            one.is_held = not held_elsewhere.isdisjoint((one.claim.connection_id, one.claim.id))
        present = [one for one in group if one.claim.connection_id in locked and not one.is_held]
        for one in present:
            one.settled_at, one.outcome = now, self._judge(one, now)
            one.connection_is_active = locked[one.claim.connection_id].status == ACTIVE
            one.follow_ups, one.cursor_was_moved = [], False
        reruns = await jobs.close(tx, [close_job(one, now) for one in present])
        for one in group:
            one.rerun = reruns.get(one.claim.id)  # none where it is held; it is judged later
        held = [one for one in present if not one.is_fenced]
        await self._store_pages(tx, held, now)
        await _move_connections(tx, held, now)
        await _queue_follow_ups(tx, held, now)

    async def _store_pages(
        self, tx: Transaction, held: Sequence[Settlement], now: datetime
    ) -> None:
        columns = signals.Columns()
        progress: list[Progress] = []
        for one in held:
            claim, cursor = one.claim, None
            if isinstance(one.outcome, Succeeded):
                page = one.outcome.page
                columns.add(claim, page, [new_id() for _ in range(page.signal_count)])
                cursor = page.next_cursor
            if cursor is not None or one.completed_at is not None:
                overwrites = overwrites_cursor(claim, self._settings.executor)
                progress.append(
                    Progress(
                        claim.connection_id,
                        cursor,
                        claim.stored_cursor,
                        overwrites,
                        one.completed_at,
                    )
                )
        if columns.ids:
            await signals.insert(tx, columns)
        moved = await connections.save_progress(tx, progress, now=now) if progress else set()
        for one in held:
            one.cursor_was_moved = one.claim.connection_id in moved

    def _judge(self, one: Settlement, now: datetime) -> Outcome:
        if isinstance(one.ending, Page):
            return Succeeded(one.ending)  # most of them: no rule need be looked up
        rules = FailureRules(
            self._settings.rate_limit.backoff(one.claim.provider_slug),
            self._settings.executor.max_attempts,
        )
        return judge(
            one.ending,
            rules,
            attempts=one.claim.attempts,
            lapses=one.claim.lapses,
            now=now,
            roll=self._dice.roll(),
        )


def overwrites_cursor(claim: Claim, settings: ExecutorSettings) -> bool:
    """Return whether a page's cursor counts, whoever moved the stored one meanwhile.

    Where types run side by side, an incremental sync may do so during a full one, which wins.
    """
    return claim.job_type == JobType.FULL and settings.single_flight == "job_type"


def close_job(one: Settlement, now: datetime) -> Closing:
    """Return the row that the outcome leaves behind."""
    claim = one.claim
    closing = Closing(claim.id, claim.lease_token, JobStatus.QUEUED, claim.attempts)
    match one.outcome:
        case Succeeded():
            closing.status = JobStatus.SUCCEEDED
        case Retry(error, _, retry_after, lapses):
            closing.attempts = min(claim.attempts + 1, MOST_ATTEMPTS)
            closing.error, closing.retry_after, closing.lapses = error, retry_after, lapses
        case Failed(error, lapses=lapses):
            closing.status, closing.attempts = (
                JobStatus.FAILED,
                min(claim.attempts + 1, MOST_ATTEMPTS),
            )
            closing.error, closing.lapses = error, min(lapses, MOST_LAPSES)
        case Released():
            closing.lapses = claim.lapses
        case Cancelled():
            closing.status = JobStatus.CANCELLED
            closing.counts_as_last = claim.attempts > 0
    if closing.status == JobStatus.QUEUED and not one.connection_is_active:
        closing.status, closing.retry_after = JobStatus.CANCELLED, None
    if closing.status != JobStatus.QUEUED:
        closing.finished_at = now
    completes = closing.counts_as_last and claim.job_type == JobType.INCREMENTAL
    one.completed_at = closing.finished_at if completes and claim.is_first else None
    return closing


async def _move_connections(tx: Transaction, held: Sequence[Settlement], now: datetime) -> None:
    """Take connections out of `active` whose job ended for good, with their queued jobs."""
    moves: list[tuple[UUID, str, str | None]] = []
    for one in held:
        match one.outcome:
            case Failed(connection_status=status) if status and one.connection_is_active:
                reason = json.dumps(_reason(one, one.outcome, now))
                moves.append((one.claim.connection_id, status, reason))
                one.connection_is_active = False
    if moves:
        expect(await connections.set_status(tx, moves, now=now), len(moves), "statuses")
        await jobs.cancel_queued(tx, [move[0] for move in moves], now=now)
    afresh = [one.claim.connection_id for one in held if _needs_a_fresh_look(one, now)]
    if afresh:
        await connections.check_now(tx, afresh)


def _needs_a_fresh_look(one: Settlement, now: datetime) -> bool:
    """Return whether the next slot may come before the tick would look.

    The tick looks one interval after the slot. A job that was pulled forward and ended before its
    slot, or that was cancelled unrun, makes the next one due earlier.
    """
    before_its_slot = one.claim.slot_ahead is not None and now < one.claim.slot_ahead
    return before_its_slot or isinstance(one.outcome, Cancelled)


async def _queue_follow_ups(tx: Transaction, held: Sequence[Settlement], now: datetime) -> None:
    for one in held:
        one.follow_ups = list(_follow_ups(one))
    follow_ups = [job for one in held for job in one.follow_ups]
    if follow_ups:
        touched = await jobs.enqueue_follow_ups(tx, follow_ups, now=now)
        expect(touched, len(follow_ups), "follow-ups")


def _follow_ups(one: Settlement) -> list[FollowUp]:
    """Return what is to be queued next: the rest of the pages, and the one more asked for."""
    claim, rerun = one.claim, one.rerun
    jobs_by_type: dict[str, FollowUp] = {}
    if isinstance(one.outcome, Succeeded) and one.outcome.page.has_more:
        jobs_by_type[JobType.INCREMENTAL] = _follow_up(
            one,
            JobType.INCREMENTAL,
            claim.priority,
            # Whoever moved the stored cursor meanwhile said where to go on.
            None if one.cursor_was_moved else one.outcome.page.next_cursor,
        )
    ended = isinstance(one.outcome, Succeeded) or (
        isinstance(one.outcome, Failed) and one.connection_is_active
    )
    if ended and rerun is not None and rerun.priority is not None:
        again = _follow_up(one, claim.job_type, rerun.priority, rerun.cursor)
        if more := jobs_by_type.get(claim.job_type):
            # A cursor left by a full pass is the one that is behind; it leads to both ends.
            again.cursor = again.cursor or more.cursor
            again.priority = max(again.priority, more.priority)
        jobs_by_type[claim.job_type] = again
    return list(jobs_by_type.values())


def _follow_up(one: Settlement, job_type: str, priority: int, cursor: str | None) -> FollowUp:
    claim = one.claim
    return FollowUp(
        id=new_id(),
        tenant_id=claim.tenant_id,
        provider_slug=claim.provider_slug,
        connection_id=claim.connection_id,
        job_type=job_type,
        priority=priority,
        cursor=cursor,
        status=JobStatus.QUEUED if one.connection_is_active else JobStatus.CANCELLED,
    )


def _reason(one: Settlement, outcome: Failed, now: datetime) -> dict[str, Any]:
    return {
        "why": outcome.reason or outcome.error_class,
        "since": rfc3339(now),
        "evidence": {"job_id": str(one.claim.id), "error": json.loads(outcome.error)},
    }
