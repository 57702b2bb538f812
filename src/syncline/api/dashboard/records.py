"""The pages about jobs and signals: the lists, one job, one signal with its payload."""

from typing import Annotated
from urllib.parse import urlencode
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from syncline.api.dashboard.renderer import CurrentDashboard, PageRoute
from syncline.api.login import ViewingOperator
from syncline.model import PENDING, JobStatus, JobType

router = APIRouter(include_in_schema=False, route_class=PageRoute)
ROWS = 50
STATUSES = [status for status in JobStatus if status != JobStatus.COMPLETED]
Text = Annotated[str, Field(max_length=300)]
Token = Annotated[str, Field(max_length=4096)]


class JobsQuery(BaseModel):
    """The filters of the list of jobs, as they appear in the address."""

    tenant: Text = ""
    provider: Text = ""
    status: Text = ""
    type: Text = ""
    connection: UUID | None = None
    after: Token = ""


@router.get("/jobs")
async def list_jobs(
    request: Request,
    viewer: ViewingOperator,
    dashboard: CurrentDashboard,
    query: Annotated[JobsQuery, Query()],
) -> Response:
    """Return the list of jobs, newest first."""
    wanted = _wanted(query)
    found = await dashboard.engine.jobs.list(
        tenant_id=query.tenant.strip() or None,
        connection_id=query.connection,
        provider_slug=query.provider or None,
        status=query.status or None,
        job_type=query.type or None,
        after=query.after or None,
        limit=ROWS,
    )
    return dashboard.render(
        "jobs.html",
        request,
        title="Jobs",
        viewer=viewer,
        wanted=wanted,
        jobs=found,
        names=await dashboard.engine.stats.names(job.connection_id for job in found),
        next_page=_link("/jobs", wanted, found.next_page) if found.next_page else None,
        is_first=not query.after,
        status_links=[
            (name, _link("/jobs", {**wanted, "status": name})) for name in ("", *STATUSES)
        ],
        types=list(JobType),
        tenants=await dashboard.tenants.get(),
        providers=await dashboard.known_providers(),
        now=await dashboard.engine.stats.now(),
    )


@router.get("/jobs/{job_id}")
async def show_job(
    request: Request, viewer: ViewingOperator, dashboard: CurrentDashboard, job_id: UUID
) -> Response:
    """Return the page of one job."""
    job = await dashboard.engine.jobs.get(job_id)
    counted = await dashboard.engine.stats.signals_of(job.connection_id, [job])
    return dashboard.render(
        "job.html",
        request,
        title="Job",
        viewer=viewer,
        job=job,
        attempts=await dashboard.engine.jobs.attempts(job_id),
        name=(await dashboard.engine.stats.names([job.connection_id])).get(job.connection_id, ""),
        signals=counted.of(job.id, job.started_at),
        is_pending=job.status in PENDING,
        can_retry=job.status in (JobStatus.QUEUED, JobStatus.FAILED, JobStatus.CANCELLED),
        now=await dashboard.engine.stats.now(),
    )


class SignalsQuery(BaseModel):
    """The filters of the list of signals, and the signal whose payload is shown."""

    tenant: Text = ""
    provider: Text = ""
    kind: Text = ""
    connection: UUID | None = None
    after: Token = ""
    show: UUID | None = None


@router.get("/signals")
async def list_signals(
    request: Request,
    viewer: ViewingOperator,
    dashboard: CurrentDashboard,
    query: Annotated[SignalsQuery, Query()],
) -> Response:
    """Return the list of signals, newest first, and the payload of the selected one."""
    wanted = _wanted(query)
    found = await dashboard.engine.signals.list(
        tenant_id=query.tenant.strip() or None,
        connection_id=query.connection,
        provider_slug=query.provider or None,
        kind=query.kind.strip() or None,
        newest_first=True,
        after=query.after or None,
        limit=ROWS,
    )
    shown = await dashboard.engine.signals.get(query.show) if query.show else None
    listed = [*found, *([shown] if shown else [])]
    return dashboard.render(
        "signals.html",
        request,
        title="Signals",
        viewer=viewer,
        wanted=wanted,
        signals=found,
        shown=shown,
        names=await dashboard.engine.stats.names(signal.connection_id for signal in listed),
        show_link=_link("/signals", {**wanted, "after": query.after}),
        next_page=_link("/signals", wanted, found.next_page) if found.next_page else None,
        is_first=not query.after,
        tenants=await dashboard.tenants.get(),
        providers=await dashboard.known_providers(),
        now=await dashboard.engine.stats.now(),
    )


def _wanted(query: JobsQuery | SignalsQuery) -> dict[str, str]:
    """Return the filters as text; an empty one means any."""
    filters = query.model_dump(exclude={"after", "show"})
    return {name: str(value or "") for name, value in filters.items()}


def _link(path: str, wanted: dict[str, str], after: str | None = None) -> str:
    chosen = {name: value for name, value in {**wanted, "after": after}.items() if value}
    return f"{path}?{urlencode(chosen)}"
