"""`/v1/jobs`: what ran, runs and will run."""

from datetime import timedelta
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response

from syncline.api.auth import CanOperate, CanRead, ScopedRoute, engine_of
from syncline.api.idempotency import answer_once
from syncline.api.requests import IdempotencyKey, JobQuery
from syncline.api.responses import AttemptOut, AttemptsOut, JobOut, JobPage, problems
from syncline.api.tenant_limits import check_storage

router = APIRouter(prefix="/v1/jobs", tags=["jobs"], route_class=ScopedRoute)


@router.get("", responses=problems())
async def list_jobs(
    request: Request, principal: CanRead, query: Annotated[JobQuery, Query()]
) -> JobPage:
    """List jobs, newest first. With `connection`, they are sorted by when they finished.

    A page may be short or empty though more follow: where no index helps a filter, a page searches
    50,000 jobs. Go on while there is a `next_page`.
    """
    found = await engine_of(request).jobs.list(
        tenant_id=principal.sees(query.tenant),
        connection_id=query.connection,
        provider_slug=query.provider,
        statuses=query.status,
        job_type=query.type,
        since=query.since,
        until=query.until,
        error_class=query.error_class,
        started_after=query.started_after,
        started_before=query.started_before,
        finished_after=query.finished_after,
        finished_before=query.finished_before,
        min_duration=_duration(query.min_duration_seconds),
        max_duration=_duration(query.max_duration_seconds),
        order=query.order,
        after=query.page,
        limit=query.limit,
    )
    items = [JobOut.of(job) for job in found]
    return JobPage(items=items, next_page=found.next_page, searched_to=found.searched_to)


@router.get("/{job_id}", responses=problems(404))
async def get_job(request: Request, principal: CanRead, job_id: UUID) -> JobOut:
    """Return a job with its failures and its last error."""
    return JobOut.of(await engine_of(request).jobs.get(job_id, tenant_id=principal.tenant_id))


@router.get("/{job_id}/attempts", responses=problems(404), operation_id="jobs.attempts")
async def list_attempts(request: Request, principal: CanRead, job_id: UUID) -> AttemptsOut:
    """List the last ten failed attempts of a job, the last one first."""
    jobs = engine_of(request).jobs
    found = await jobs.attempts(job_id, tenant_id=principal.tenant_id)
    return AttemptsOut(items=[AttemptOut.of(attempt) for attempt in found])


@router.post(
    "/{job_id}/retry", status_code=202, responses=problems(404, 409, 415), response_model=JobOut
)
async def retry_job(
    request: Request, principal: CanOperate, job_id: UUID, key: IdempotencyKey = None
) -> Response:
    """Run a job again now. A job that has ended gets a new job."""
    await check_storage(engine_of(request), principal)
    jobs = engine_of(request).jobs
    return await answer_once(
        request,
        key,
        lambda once: jobs.retry(job_id, tenant_id=principal.tenant_id, once=once),
        JobOut.of,
        status=202,
    )


@router.post("/{job_id}/cancel", responses=problems(404, 409, 415))
async def cancel_job(request: Request, principal: CanOperate, job_id: UUID) -> JobOut:
    """Cancel a queued or running job. A worker stops it when it next renews the lease."""
    return JobOut.of(await engine_of(request).jobs.cancel(job_id, tenant_id=principal.tenant_id))


def _duration(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)
