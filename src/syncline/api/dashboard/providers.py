"""The pages about providers: all of them, and one with its charts and failures."""

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from syncline.api.dashboard.filters import link
from syncline.api.dashboard.history_charts import draw_history
from syncline.api.dashboard.renderer import CurrentDashboard, PageRoute
from syncline.api.login import ViewingOperator
from syncline.api.problems import Problem
from syncline.app import Engine
from syncline.model import Job, JobOrder
from syncline.policy.figures import PERIODS
from syncline.policy.stats import ProviderStats
from syncline.services.pagination import Listing

router = APIRouter(include_in_schema=False, route_class=PageRoute)
JOBS_SHOWN = 8
Period = Literal["1h", "24h", "7d", "90d"]


@router.get("/providers")
async def providers(
    request: Request,
    viewer: ViewingOperator,
    dashboard: CurrentDashboard,
    provider: Annotated[str, Query(max_length=300)] = "",
    period: Period = "1h",
) -> Response:
    """Return the providers and their health, or the page of one.

    Its name is a parameter, because it may hold anything: slashes, or `..`.
    """
    seen = await dashboard.providers.get()
    if provider:
        return await _show_one(request, viewer, dashboard, provider, period)
    idle = [one for one in seen.items if not one.connections and not one.is_unwell]
    return dashboard.render(
        "providers.html",
        request,
        title="Providers",
        viewer=viewer,
        seen=seen,
        shown=sorted((one for one in seen.items if one not in idle), key=_urgency),
        idle=idle,
    )


async def _show_one(
    request: Request,
    viewer: ViewingOperator,
    dashboard: CurrentDashboard,
    slug: str,
    period: Period,
) -> Response:
    seen, engine = await dashboard.providers.get(), dashboard.engine
    one = next((item for item in seen.items if item.provider_slug == slug), None)
    if one is None:
        raise Problem(404, "not-found", f"no connection, job or live worker has provider {slug!r}")
    history = await engine.stats.history(period, provider_slug=slug)
    troubles = await engine.stats.troubles_at(slug)
    newest, slowest = await _newest_and_slowest(engine, slug, history.points[0].at)
    return dashboard.render(
        "provider.html",
        request,
        title=slug,
        viewer=viewer,
        one=one,
        whose={"provider": slug},
        switch_tenant="",
        switch_provider=slug,
        switch_pause=one.gate if one.gate and one.gate.paused_at else None,
        switch_here=link("/providers", {"provider": slug}),
        kind=seen.kind,
        history=history,
        charts=draw_history(history),
        periods=list(PERIODS),
        base=link("/providers", {"provider": slug}) + "&",
        waiting=[trouble for trouble in troubles if trouble.waits_for_person],
        failing=[trouble for trouble in troubles if not trouble.waits_for_person],
        newest=newest,
        slowest=slowest,
        names=await engine.stats.names(job.connection_id for job in (*newest, *slowest)),
        now=seen.now,
    )


async def _newest_and_slowest(
    engine: Engine, slug: str, since: datetime
) -> tuple[Listing[Job], Listing[Job]]:
    newest = await engine.jobs.list(provider_slug=slug, limit=JOBS_SHOWN)
    slowest = await engine.jobs.list(
        provider_slug=slug, order=JobOrder.SLOWEST, limit=JOBS_SHOWN, finished_after=since
    )
    return newest, slowest


def _urgency(one: ProviderStats) -> tuple[bool, int, str]:
    """Return what sorts providers in trouble first, then those with most connections."""
    return not one.is_unwell, -sum(one.connections.values()), one.provider_slug
