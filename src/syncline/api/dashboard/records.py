"""The pages about jobs and signals: lists, one job, one signal with its payload."""

from typing import Annotated
from urllib.parse import urlencode
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response

from syncline.api.dashboard.renderer import PageRoute, Shown
from syncline.api.login import ViewingOperator
from syncline.model import PENDING, JobStatus, JobType

router = APIRouter(include_in_schema=False, route_class=PageRoute)
ROWS = 50
STATUSES = [status for status in JobStatus if status != JobStatus.COMPLETED]
Text = Annotated[str, Query(max_length=300)]
Token = Annotated[str, Query(max_length=4096)]


@router.get("/jobs")
async def list_jobs(
    request: Request,
    viewer: ViewingOperator,
    views: Shown,
    tenant: Text = "",
    provider: Text = "",
    status: Text = "",
    type: Text = "",
    connection: UUID | None = None,
    after: Token = "",
) -> Response:
    """Return a page of jobs, the newest first."""
    wanted = {
        "tenant": tenant,
        "provider": provider,
        "status": status,
        "type": type,
        "connection": str(connection or ""),
    }
    found = await views.engine.jobs.list(
        tenant_id=tenant.strip() or None,
        connection_id=connection,
        provider_slug=provider or None,
        status=status or None,
        job_type=type or None,
        after=after or None,
        limit=ROWS,
    )
    return views.page(
        "jobs.html",
        request,
        title="Jobs",
        viewer=viewer,
        wanted=wanted,
        jobs=found,
        names=await views.engine.stats.names(job.connection_id for job in found),
        next_page=_link("/jobs", wanted, found.next_page) if found.next_page else None,
        is_first=not after,
        statuses=STATUSES,
        status_links=[
            (name, _link("/jobs", {**wanted, "status": name})) for name in ("", *STATUSES)
        ],
        types=list(JobType),
        tenants=await views.tenants.get(),
        providers=await views.providers_known(),
        now=await views.engine.stats.now(),
    )


@router.get("/jobs/{job_id}")
async def show_job(
    request: Request, viewer: ViewingOperator, views: Shown, job_id: UUID
) -> Response:
    """Return everything about one job."""
    job = await views.engine.jobs.get(job_id)
    counted = await views.engine.stats.signals_of(job.connection_id, [job])
    return views.page(
        "job.html",
        request,
        title="Job",
        viewer=viewer,
        job=job,
        name=(await views.engine.stats.names([job.connection_id])).get(job.connection_id, ""),
        signals=counted.of(job.id, job.started_at),
        is_pending=job.status in PENDING,
        can_retry=job.status in (JobStatus.QUEUED, JobStatus.FAILED, JobStatus.CANCELLED),
        now=await views.engine.stats.now(),
    )


@router.get("/signals")
async def list_signals(
    request: Request,
    viewer: ViewingOperator,
    views: Shown,
    tenant: Text = "",
    provider: Text = "",
    kind: Text = "",
    connection: UUID | None = None,
    after: Token = "",
    show: UUID | None = None,
) -> Response:
    """Return a page of signals, the newest first, and the payload of the one to be shown."""
    wanted = {
        "tenant": tenant,
        "provider": provider,
        "kind": kind,
        "connection": str(connection or ""),
    }
    found = await views.engine.signals.list(
        tenant_id=tenant.strip() or None,
        connection_id=connection,
        provider_slug=provider or None,
        kind=kind.strip() or None,
        newest_first=True,
        after=after or None,
        limit=ROWS,
    )
    shown = await views.engine.signals.get(show) if show else None
    listed = [*found, *([shown] if shown else [])]
    return views.page(
        "signals.html",
        request,
        title="Signals",
        viewer=viewer,
        wanted=wanted,
        signals=found,
        shown=shown,
        names=await views.engine.stats.names(signal.connection_id for signal in listed),
        show_link=_link("/signals", {**wanted, "after": after}),
        next_page=_link("/signals", wanted, found.next_page) if found.next_page else None,
        is_first=not after,
        tenants=await views.tenants.get(),
        providers=await views.providers_known(),
        now=await views.engine.stats.now(),
    )


def _link(path: str, wanted: dict[str, str], after: str | None = None) -> str:
    chosen = {name: value for name, value in {**wanted, "after": after}.items() if value}
    return f"{path}?{urlencode(chosen)}"
