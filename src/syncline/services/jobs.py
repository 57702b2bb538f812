"""What people do with jobs: look, trigger, retry, cancel."""

from datetime import datetime
from uuid import UUID

from syncline.clock import new_id
from syncline.errors import Conflict, Invalid, NotFound
from syncline.model import Job, JobFilter, JobStatus, JobType
from syncline.services.base import BaseService, Once
from syncline.services.pagination import Listing, listing, read_token, token
from syncline.services.validation import (
    check_choice,
    check_filters,
    check_times,
    get_job,
    lock_connection,
)
from syncline.store.data import connections
from syncline.store.listings.jobs import place_of, read_page
from syncline.store.pool import Transaction
from syncline.store.queue import triggers
from syncline.store.queue.triggers import Request

TRIGGER_PRIORITY = 10
TENANTS_HIGHEST_PRIORITY = 10  # P11: of what a tenant's key asks for
MAX_PRIORITY = 32_767
ALL_JOBS = JobFilter()


class Jobs(BaseService):
    async def get(self, job_id: UUID, *, tenant_id: str | None = None) -> Job:
        async def read(tx: Transaction) -> Job:
            return await get_job(tx, job_id, tenant_id)

        return await self._pool.reading(read)

    async def list(
        self,
        *,
        tenant_id: str | None = None,
        connection_id: UUID | None = None,
        provider_slug: str | None = None,
        status: str | None = None,
        job_type: str | None = None,
        before: UUID | None = None,
        limit: int = 100,
    ) -> list[Job]:
        """Return jobs, the newest first, from the one before `before`."""
        wanted = JobFilter(tenant_id, connection_id, provider_slug, status, job_type)
        _check_listing(wanted)

        async def read(tx: Transaction) -> list[Job]:
            place = None
            if before is not None:
                place = place_of(await get_job(tx, before, tenant_id), wanted)
            return await read_page(tx, wanted, before=place, limit=limit)

        return await self._pool.reading(read)

    async def page(
        self, wanted: JobFilter = ALL_JOBS, *, after: str | None = None, limit: int = 100
    ) -> Listing[Job]:
        """Return a page of jobs, the newest first; one connection's by when they finished."""
        _check_listing(wanted)
        order, key = ("finished", datetime) if wanted.connection_id is not None else ("id", None)
        place = read_token(after, order, key)

        async def read(tx: Transaction) -> list[Job]:
            return await read_page(tx, wanted, before=place, limit=limit + 1)

        found = await self._pool.reading(read)
        return listing(found, limit, lambda last: token(order, *place_of(last, wanted)))

    async def trigger(
        self,
        connection_id: UUID,
        *,
        job_type: str = JobType.INCREMENTAL,
        priority: int | None = None,
        tenant_id: str | None = None,
        once: Once[Job] | None = None,
    ) -> Job:
        """Sync now; return the job that will carry it out."""
        check_choice("job_type", job_type, JobType)
        chosen = TRIGGER_PRIORITY if priority is None else priority
        if isinstance(chosen, bool) or not isinstance(chosen, int) or abs(chosen) > MAX_PRIORITY:
            allowed = f"an integer from -{MAX_PRIORITY} to {MAX_PRIORITY}"
            raise Invalid("priority", f"is {priority!r}; it must be {allowed}")

        request = Request(connection_id, tenant_id, job_type, chosen)
        if once is None:
            job = await self._pool.retrying(lambda tx: self._trigger(tx, request), alone=True)
        else:
            job = await self._change(lambda tx: self._trigger(tx, request), once)
        self._wakeup.wake()
        return job

    async def retry(
        self, job_id: UUID, *, tenant_id: str | None = None, once: Once[Job] | None = None
    ) -> Job:
        """Make a queued job due now, or trigger a new one like the one that ended."""

        async def change(tx: Transaction) -> Job:
            found = await get_job(tx, job_id, tenant_id)
            await lock_connection(tx, found.connection_id, tenant_id)
            job = await get_job(tx, job_id, tenant_id)
            if job.status == JobStatus.QUEUED:
                await triggers.make_due(tx, job_id, now=await self._clock.now(tx))
                await self._wakeup.notify(tx)
                return await get_job(tx, job_id, tenant_id)
            if job.status not in (JobStatus.FAILED, JobStatus.CANCELLED):
                raise Conflict(job_id, "job", f"is {job.status}; there is nothing to retry")
            cursor = await triggers.get_cursor(tx, job_id)
            return await self._trigger(
                tx, Request(job.connection_id, None, job.job_type, TRIGGER_PRIORITY, cursor)
            )

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
            return await get_job(tx, job_id, tenant_id)

        return await self._pool.retrying(change)

    async def _trigger(self, tx: Transaction, request: Request) -> Job:
        status, job = await triggers.trigger(
            tx,
            request,
            new_id(),
            now=self._clock.instant(),
            channel=self._wakeup.channel,
            sender=self._wakeup.name,
        )
        if status is None:
            raise NotFound("connection", request.connection_id)
        if job is None:
            raise Conflict(request.connection_id, reason=f"is {status}, not active")
        return job


def _check_listing(wanted: JobFilter) -> None:
    if wanted.status is not None:
        check_choice("status", wanted.status, JobStatus)
    if wanted.job_type is not None:
        check_choice("job_type", wanted.job_type, JobType)
    check_filters(tenant_id=wanted.tenant_id, provider_slug=wanted.provider_slug)
    check_times(wanted.since, wanted.until)
