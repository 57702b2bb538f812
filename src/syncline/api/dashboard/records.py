"""The pages about jobs and signals: the lists, one job, one signal with its payload."""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from syncline.api.dashboard.filters import link, read_duration, read_time
from syncline.api.dashboard.renderer import CurrentDashboard, PageRoute
from syncline.api.login import ViewingOperator
from syncline.model import PENDING, JobOrder, JobStatus, JobType, QueueState
from syncline.services.jobs import JobFilterFields

router = APIRouter(include_in_schema=False, route_class=PageRoute)
ROWS = 50
STATUSES = [
    *(JobStatus.QUEUED, *QueueState, JobStatus.RUNNING),
    *(JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED),
]
DETAILED = ("error", "from", "to", "min", "max", "order")
VIEWS: tuple[tuple[str, dict[str, str | None]], ...] = (
    ("Failed in the last hour", {"status": "failed", "from": "1h"}),
    ("Slowest of the last day", {"order": "slowest", "from": "24h"}),
    ("Longer than a minute", {"min": "1min"}),
    ("Rate limited", {"status": "backoff", "error": "RateLimited"}),
)
Text = Annotated[str, Field(max_length=300)]
Token = Annotated[str, Field(max_length=4096)]


class JobsQuery(BaseModel):
    """The filters of the list of jobs, as they appear in the address."""

    tenant: Text = ""
    provider: Text = ""
    status: Text = ""
    type: Text = ""
    error: Text = ""
    by: Literal["", "started", "made"] = ""  # when it finished, unless it says otherwise
    since: Text = Field("", alias="from")
    until: Text = Field("", alias="to")
    min: Text = ""
    max: Text = ""
    order: Literal["", "slowest"] = ""
    connection: UUID | None = None
    after: Token = ""


@router.get("/jobs")
async def list_jobs(
    request: Request,
    viewer: ViewingOperator,
    dashboard: CurrentDashboard,
    query: Annotated[JobsQuery, Query()],
) -> Response:
    """Return the list of jobs, newest first or slowest first."""
    now = await dashboard.engine.stats.now()
    wanted = _wanted(query)
    found = await dashboard.engine.jobs.list(
        **job_filter(query, now),
        order=query.order or JobOrder.NEWEST,
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
        first_page=link("/jobs", wanted),
        next_page=link("/jobs", wanted, after=found.next_page) if found.next_page else None,
        is_first=not query.after,
        status_links=[
            (name, link("/jobs", {**wanted, "status": name})) for name in ("", *STATUSES)
        ],
        views=[(title, link("/jobs", view)) for title, view in VIEWS],
        is_detailed=any(wanted[name] for name in DETAILED),
        types=list(JobType),
        tenants=await dashboard.tenants.get(),
        providers=await dashboard.known_providers(),
        now=now,
    )


def job_filter(query: JobsQuery, now: datetime) -> JobFilterFields:
    after, before = read_time("from", query.since, now), read_time("to", query.until, now)
    times: JobFilterFields = {"finished_after": after, "finished_before": before}
    if query.by == "started":
        times = {"started_after": after, "started_before": before}
    if query.by == "made":
        times = {"since": after, "until": before}
    return {
        "tenant_id": query.tenant or None,
        "connection_id": query.connection,
        "provider_slug": query.provider or None,
        "status": query.status or None,
        "job_type": query.type or None,
        "error_class": query.error.strip() or None,
        "min_duration": read_duration("min", query.min),
        "max_duration": read_duration("max", query.max),
        **times,
    }


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
    job: UUID | None = None
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
        tenant_id=query.tenant or None,
        connection_id=query.connection,
        provider_slug=query.provider or None,
        kind=query.kind.strip() or None,
        job_id=query.job,
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
        show_link=link("/signals", wanted, after=query.after, show="_").removesuffix("_"),
        close_link=link("/signals", wanted, after=query.after),
        first_page=link("/signals", wanted),
        next_page=link("/signals", wanted, after=found.next_page) if found.next_page else None,
        is_first=not query.after,
        tenants=await dashboard.tenants.get(),
        providers=await dashboard.known_providers(),
        now=await dashboard.engine.stats.now(),
    )


def _wanted(query: JobsQuery | SignalsQuery) -> dict[str, str]:
    """Return the filters as text; an empty one means any."""
    filters = query.model_dump(exclude={"after", "show"}, exclude_defaults=False, by_alias=True)
    return {name: str(value or "") for name, value in filters.items()}
