"""`/v1/jobs`: what ran, runs and will run."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response

from syncline.api.auth import CanOperate, CanRead, ScopedRoute
from syncline.api.idempotency import IdempotencyKey, answer_once, engine_of, problems
from syncline.api.requests import JobQuery
from syncline.api.responses import JobOut, JobPage
from syncline.api.tenant_limits import check_storage

router = APIRouter(prefix="/v1/jobs", tags=["jobs"], route_class=ScopedRoute)


@router.get("", responses=problems())
async def list_jobs(
    request: Request, principal: CanRead, asked: Annotated[JobQuery, Query()]
) -> JobPage:
    """Return a page of jobs, the newest first; one connection's by when they finished."""
    found = await engine_of(request).jobs.list(
        tenant_id=principal.sees(asked.tenant),
        connection_id=asked.connection,
        provider_slug=asked.provider,
        status=asked.status,
        job_type=asked.type,
        since=asked.since,
        until=asked.until,
        after=asked.page,
        limit=asked.limit,
    )
    return JobPage(items=[JobOut.of(job) for job in found], next_page=found.next_page)


@router.get("/{job_id}", responses=problems(404))
async def get_job(request: Request, principal: CanRead, job_id: UUID) -> JobOut:
    """Return a job, with how often it failed and what last went wrong."""
    return JobOut.of(await engine_of(request).jobs.get(job_id, tenant_id=principal.tenant_id))


@router.post(
    "/{job_id}/retry", status_code=202, responses=problems(404, 409, 415), response_model=JobOut
)
async def retry_job(
    request: Request, principal: CanOperate, job_id: UUID, key: IdempotencyKey = None
) -> Response:
    """Run a job again, now; of one that has ended a new one is made."""
    await check_storage(engine_of(request), principal)
    jobs = engine_of(request).jobs
    return await answer_once(
        request,
        principal,
        key,
        JobOut.of,
        lambda once: jobs.retry(job_id, tenant_id=principal.tenant_id, once=once),
        status=202,
    )


@router.post("/{job_id}/cancel", responses=problems(404, 409, 415))
async def cancel_job(request: Request, principal: CanOperate, job_id: UUID) -> JobOut:
    """Cancel a queued or running job; a worker that runs it stops at its next renewal."""
    return JobOut.of(await engine_of(request).jobs.cancel(job_id, tenant_id=principal.tenant_id))
