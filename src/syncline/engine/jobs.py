"""What people do with jobs: look, trigger, retry, cancel."""

from uuid import UUID

from syncline.clock import new_id
from syncline.engine.desk import Desk, check_choice, get_job, lock_connection
from syncline.model import ConnectionStatus, Job, JobStatus, JobType
from syncline.store import connections, requests, views
from syncline.store.connections import LockedConnection
from syncline.store.jobs import FollowUp
from syncline.store.pool import Transaction

TRIGGER_PRIORITY = 10
MAX_PRIORITY = 32_767


class Jobs(Desk):
    async def get(self, job_id: UUID, *, tenant_id: str | None = None) -> Job:
        async def read(tx: Transaction) -> Job:
            return await get_job(tx, job_id, tenant_id)

        return await self._pool.retrying(read)

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
        if status is not None:
            check_choice("status", status, JobStatus)
        if job_type is not None:
            check_choice("job_type", job_type, JobType)

        async def read(tx: Transaction) -> list[Job]:
            return await views.list_jobs(
                tx,
                tenant_id,
                connection_id=connection_id,
                provider_slug=provider_slug,
                status=status,
                job_type=job_type,
                before=before,
                limit=limit,
            )

        return await self._pool.retrying(read)

    async def trigger(
        self,
        connection_id: UUID,
        *,
        job_type: str = JobType.INCREMENTAL,
        priority: int | None = None,
        tenant_id: str | None = None,
    ) -> Job:
        """Sync now; return the job that will carry it out."""
        check_choice("job_type", job_type, JobType)
        chosen = TRIGGER_PRIORITY if priority is None else priority
        if isinstance(chosen, bool) or not isinstance(chosen, int) or abs(chosen) > MAX_PRIORITY:
            raise ValueError(
                f"priority is {priority!r}; it must be an integer within ±{MAX_PRIORITY}"
            )

        async def change(tx: Transaction) -> Job:
            locked = await lock_connection(tx, connection_id, tenant_id)
            return await self._trigger(tx, locked, job_type, chosen, None)

        return await self._pool.retrying(change)

    async def retry(self, job_id: UUID, *, tenant_id: str | None = None) -> Job:
        """Make a queued job due now, or trigger a new one like the one that ended."""

        async def change(tx: Transaction) -> Job:
            found = await get_job(tx, job_id, tenant_id)
            locked = await lock_connection(tx, found.connection_id, tenant_id)
            job = await get_job(tx, job_id, tenant_id)
            if job.status == JobStatus.QUEUED:
                await requests.make_due(tx, job_id, now=await self._clock.now(tx))
                await self._wakeup.notify(tx)
                return await get_job(tx, job_id, tenant_id)
            if job.status not in (JobStatus.FAILED, JobStatus.CANCELLED):
                raise ValueError(f"job {job_id} is {job.status}; there is nothing to retry")
            cursor = await requests.get_cursor(tx, job_id)
            return await self._trigger(tx, locked, job.job_type, TRIGGER_PRIORITY, cursor)

        return await self._pool.retrying(change)

    async def cancel(self, job_id: UUID, *, tenant_id: str | None = None) -> Job:
        """Cancel a queued or running job; a worker that runs it stops at its next renewal."""

        async def change(tx: Transaction) -> Job:
            job = await get_job(tx, job_id, tenant_id)
            await lock_connection(tx, job.connection_id, tenant_id)
            if not await requests.cancel(tx, job_id, now=await self._clock.now(tx)):
                ended = await get_job(tx, job_id, tenant_id)
                raise ValueError(f"job {job_id} is {ended.status} already")
            await connections.look_at_once(tx, [job.connection_id])
            return await get_job(tx, job_id, tenant_id)

        return await self._pool.retrying(change)

    async def _trigger(
        self,
        tx: Transaction,
        locked: LockedConnection,
        job_type: str,
        priority: int,
        cursor: str | None,
    ) -> Job:
        if locked.status != ConnectionStatus.ACTIVE:
            raise ValueError(f"connection {locked.id} is {locked.status}, not active")
        job = FollowUp(
            id=new_id(),
            tenant_id=locked.tenant_id,
            provider_slug=locked.provider_slug,
            connection_id=locked.id,
            job_type=job_type,
            priority=priority,
            cursor=cursor,
            status=JobStatus.QUEUED,
        )
        triggered = await requests.trigger(tx, job, now=await self._clock.now(tx))
        await self._wakeup.notify(tx)
        return triggered
