"""What people do with jobs: list, trigger, retry and cancel them, one by one or many."""

import asyncio
import builtins
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, TypedDict, Unpack
from uuid import UUID

from syncline.clock import new_id
from syncline.errors import Conflict, Invalid, NotFound, Refused
from syncline.model import Attempt, Job, JobFilter, JobOrder, JobStatus, JobType, QueueState
from syncline.policy.audit import Action, about
from syncline.services.base import BaseService, Once
from syncline.services.pagination import (
    Listing,
    check_limit,
    cut_page,
    read_instant,
    read_token,
    write_token,
)
from syncline.services.validation import (
    check_choice,
    check_filters,
    check_times,
    get_connection,
    get_job,
    lock_connection,
)
from syncline.store.data import attempts, connections
from syncline.store.listings import jobs as listed
from syncline.store.listings import queue
from syncline.store.listings.jobs import FoundJobs, place_of
from syncline.store.listings.queue import QueuePlace
from syncline.store.pool import Transaction
from syncline.store.queue import triggers
from syncline.store.queue.triggers import TriggerRequest

TRIGGER_PRIORITY = 10
TENANTS_HIGHEST_PRIORITY = 10  # the highest that a tenant's key may request
MAX_PRIORITY = 32_767
LONGEST_DURATION = timedelta(days=3660)
BATCH_SIZE = 500
CONCURRENT_CHANGES = 5  # half of the usual pool, so that others get a turn

RETRIED_STATES = ("failed", "cancelled", "backoff")
CANCELLED_STATES = ("queued", "running")


class JobFilterFields(TypedDict, total=False):
    """Which jobs a listing holds; None, or a key left out, stands for any."""

    tenant_id: str | None
    connection_id: UUID | None
    provider_slug: str | None
    status: str | None
    job_type: str | None
    since: datetime | None
    until: datetime | None
    error_class: str | None
    started_after: datetime | None
    started_before: datetime | None
    finished_after: datetime | None
    finished_before: datetime | None
    min_duration: timedelta | None
    max_duration: timedelta | None


@dataclass(slots=True)
class BatchReport:
    """How many jobs were changed, and how many were refused for which reason."""

    done: int = 0
    refused: Counter[str] = field(default_factory=Counter)


class Jobs(BaseService):
    async def get(self, job_id: UUID, *, tenant_id: str | None = None) -> Job:
        async def read(tx: Transaction) -> Job:
            return await get_job(tx, job_id, tenant_id)

        return await self._pool.reading(read)

    async def attempts(
        self, job_id: UUID, *, tenant_id: str | None = None
    ) -> builtins.list[Attempt]:
        """Return the last failed attempts of a job, the last one first.

        With a tenant's id, without workers and traces, which tell of this installation.
        """

        async def read(tx: Transaction) -> builtins.list[Attempt]:
            await get_job(tx, job_id, tenant_id)
            return await attempts.list_of_job(tx, job_id, tenant_id)

        return await self._pool.reading(read)

    async def list(
        self,
        *,
        order: str = JobOrder.NEWEST,
        after: str | None = None,
        limit: int = 100,
        statuses: Sequence[str] = (),
        **filters: Unpack[JobFilterFields],
    ) -> Listing[Job]:
        """Return a page of jobs, newest first; one connection's jobs by when they finished.

        A page may be short or empty though more follow: where no index helps a filter, a page
        searches the next 50,000 jobs, and `searched_to` is the time at which it stopped. Jobs that
        are due, scheduled for later or in backoff come in the order in which they will run. The
        slowest jobs are one page, of the newest 50,000. `statuses` finds jobs in any of several.
        """
        wanted = JobFilter(**filters)
        each = _each_status(wanted, statuses)
        wanted = each[0]
        check_choice("order", order, JobOrder)
        check_limit(limit)
        if order == JobOrder.SLOWEST:
            return await self._slowest(each, limit)
        is_everybodys = wanted.tenant_id is None and wanted.connection_id is None
        if wanted.status in list(QueueState) and is_everybodys:
            return await self._queued(wanted, after, limit)
        sorted_by, key = ("finished", datetime) if wanted.connection_id else ("id", None)
        place = read_token(after, sorted_by, key)

        async def read(tx: Transaction) -> FoundJobs:
            now = await self._clock.now(tx)
            return await listed.read_pages(tx, each, now=now, before=place, limit=limit + 1)

        found = await self._pool.reading(read)
        if found.end is not None:
            token = write_token(sorted_by, None, found.end.job_id)
            return Listing(found.jobs, token, found.end.created_at)
        return cut_page(
            found.jobs, limit, lambda last: write_token(sorted_by, *place_of(last, wanted))
        )

    async def _slowest(self, wanted: Sequence[JobFilter], limit: int) -> Listing[Job]:
        async def read(tx: Transaction) -> FoundJobs:
            now = await self._clock.now(tx)
            return await listed.read_slowest(tx, wanted, now=now, limit=limit)

        found = await self._pool.reading(read)
        return Listing(found.jobs, None, found.end.created_at if found.end else None)

    async def _queued(self, wanted: JobFilter, after: str | None, limit: int) -> Listing[Job]:
        place = _read_queue_place(after)

        async def read(tx: Transaction) -> builtins.list[Job]:
            now = await self._clock.now(tx)
            return await queue.read_page(tx, wanted, now=now, after=place, limit=limit + 1)

        found = await self._pool.reading(read)
        return cut_page(found, limit, lambda last: _write_queue_place(queue.place_of(last)))

    async def trigger(
        self,
        connection_id: UUID,
        *,
        job_type: str = JobType.INCREMENTAL,
        priority: int | None = None,
        tenant_id: str | None = None,
        once: Once[Job] | None = None,
    ) -> Job:
        """Sync now; return the job that will do it."""
        check_choice("job_type", job_type, JobType)
        chosen = TRIGGER_PRIORITY if priority is None else priority
        if isinstance(chosen, bool) or not isinstance(chosen, int) or abs(chosen) > MAX_PRIORITY:
            allowed = f"an integer from -{MAX_PRIORITY} to {MAX_PRIORITY}"
            raise Invalid("priority", f"is {priority!r}; it must be {allowed}")

        request = TriggerRequest(connection_id, tenant_id, job_type, chosen)
        if once is None and self._actor.is_application:  # not recorded: this is how it works
            job = await self._pool.retrying(lambda tx: self._trigger(tx, request), alone=True)
        else:
            job = await self._change(lambda tx: self._trigger_for_somebody(tx, request), once)
        self._wakeup.wake()
        return job

    async def retry(
        self, job_id: UUID, *, tenant_id: str | None = None, once: Once[Job] | None = None
    ) -> Job:
        """Make a queued job due now, or trigger a new one like the job that ended."""

        async def change(tx: Transaction) -> Job:
            found = await get_job(tx, job_id, tenant_id)
            await lock_connection(tx, found.connection_id, tenant_id)
            job = await get_job(tx, job_id, tenant_id)
            if job.status == JobStatus.QUEUED:
                await triggers.make_due(tx, job_id, now=await self._clock.now(tx))
                await self._wakeup.notify(tx)
                await self._record_job(tx, Action.JOBS_RETRY, job)
                return await get_job(tx, job_id, tenant_id)
            if job.status not in (JobStatus.FAILED, JobStatus.CANCELLED):
                raise Conflict(job_id, "job", f"is {job.status}; there is nothing to retry")
            cursor = await triggers.get_cursor(tx, job_id)
            retried = await self._trigger(
                tx, TriggerRequest(job.connection_id, None, job.job_type, TRIGGER_PRIORITY, cursor)
            )
            await self._record_job(tx, Action.JOBS_RETRY, job, retried_by=str(retried.id))
            return retried

        job = await self._change(change, once)
        self._wakeup.wake()
        return job

    async def cancel(self, job_id: UUID, *, tenant_id: str | None = None) -> Job:
        """Cancel a queued or running job; a worker that runs it stops at its next renewal."""

        async def change(tx: Transaction) -> Job:
            job = await get_job(tx, job_id, tenant_id)
            await lock_connection(tx, job.connection_id, tenant_id)
            if not await triggers.cancel(tx, job_id, now=await self._clock.now(tx)):
                ended = await get_job(tx, job_id, tenant_id)
                raise Conflict(job_id, "job", f"is {ended.status} already")
            await connections.check_now(tx, [job.connection_id])
            await self._record_job(tx, Action.JOBS_CANCEL, job)
            return await get_job(tx, job_id, tenant_id)

        return await self._pool.retrying(change)

    async def find(self, which: JobFilter, states: Sequence[str]) -> builtins.list[UUID]:
        """Return the jobs in these states; of jobs that ended, only each connection's last."""
        found: builtins.list[UUID] = []
        for state in states:
            async for batch in self._find(which, state):
                found += batch
        return found

    async def _find(self, which: JobFilter, state: str) -> AsyncIterator[builtins.list[UUID]]:
        after = UUID(int=0)
        while batch := await self._next(which, state, after):
            yield batch
            after = batch[-1]

    async def _next(self, which: JobFilter, state: str, after: UUID) -> builtins.list[UUID]:
        async def read(tx: Transaction) -> builtins.list[UUID]:
            return await triggers.next_jobs(tx, which, state, after=after, limit=BATCH_SIZE)

        return await self._pool.retrying(read)

    async def _trigger_for_somebody(self, tx: Transaction, request: TriggerRequest) -> Job:
        job = await self._trigger(tx, request)
        if not self._actor.is_application:
            await self._record_job(tx, Action.CONNECTIONS_SYNC, job, priority=request.priority)
        return job

    async def _record_job(self, tx: Transaction, action: Action, job: Job, **more: Any) -> None:
        """Record what is done to a job, as it was before."""
        connection = await get_connection(tx, job.connection_id, None)
        is_new = action is Action.CONNECTIONS_SYNC
        entry = about(
            connection,
            action,
            before=None if is_new else {"status": job.status},
            after={"job_id": str(job.id), "job_type": job.job_type, **more},
        )
        await self._record(tx, entry, now=await self._clock.now(tx))

    async def _trigger(self, tx: Transaction, request: TriggerRequest) -> Job:
        notification, now = self._wakeup.notification, self._clock.instant()
        status, job = await triggers.trigger(tx, request, new_id(), notification, now=now)
        if status is None:
            raise NotFound("connection", request.connection_id)
        if job is None:
            raise Conflict(request.connection_id, reason=f"is {status}, not active")
        return job


async def change_each(
    job_ids: Sequence[UUID],
    change: Callable[[UUID], Awaitable[Job]],
    on_progress: Callable[[int], None] = lambda _: None,
) -> BatchReport:
    """Change jobs one by one, a few at a time, and count the refusals by reason."""
    report = BatchReport()
    waiting = iter(job_ids)

    async def work() -> None:
        for job_id in waiting:
            try:
                await change(job_id)
                report.done += 1
            except Refused as error:
                report.refused[error.summary] += 1
            on_progress(1)

    await asyncio.gather(*(work() for _ in range(CONCURRENT_CHANGES)))
    return report


def _each_status(wanted: JobFilter, statuses: Sequence[str]) -> list[JobFilter]:
    """Return a filter for each status; all of them together find what is wanted."""
    each = [replace(wanted, status=one) for one in dict.fromkeys(statuses)] or [wanted]
    for one in each:
        check_job_filter(one)
        if len(each) > 1 and one.status in list(QueueState):
            raise Invalid("status", f"is {one.status} and another; {one.status} stands alone")
    return each


def check_job_filter(wanted: JobFilter) -> None:
    """Refuse a filter that no job can match."""
    if wanted.status is not None:
        check_choice("status", wanted.status, (*JobStatus, *QueueState))
    if wanted.job_type is not None:
        check_choice("job_type", wanted.job_type, JobType)
    check_filters(
        tenant_id=wanted.tenant_id,
        provider_slug=wanted.provider_slug,
        error_class=wanted.error_class,
    )
    times = ("since", "until", "started_after", "started_before", "finished_after")
    check_times(**{name: getattr(wanted, name) for name in (*times, "finished_before")})
    for name in ("min_duration", "max_duration"):
        duration = getattr(wanted, name)
        if duration is not None and not timedelta() <= duration <= LONGEST_DURATION:
            raise Invalid(name, f"is {duration}; it must be between zero and ten years")


def _write_queue_place(place: QueuePlace) -> str:
    key = [place.has_failed, place.provider_slug, place.priority, place.at.isoformat()]
    return write_token("queue", json.dumps(key), place.job_id)


def _read_queue_place(token: str | None) -> QueuePlace | None:
    found = read_token(token, "queue", str)
    if found is None:
        return None
    try:
        has_failed, slug, priority, at = json.loads(found[0])
        return QueuePlace(bool(has_failed), str(slug), int(priority), read_instant(at), found[1])
    except (ValueError, TypeError):
        raise Invalid("after", "is not a token that a listing returned") from None
