"""The pages about tenants: all of them by name, and how one is doing."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from syncline.api.dashboard.filters import link
from syncline.api.dashboard.renderer import CurrentDashboard, PageRoute
from syncline.api.login import ViewingOperator
from syncline.api.problems import Problem
from syncline.model import ConnectionStatus, JobOrder
from syncline.policy.stats import list_failures, sum_counts

router = APIRouter(include_in_schema=False, route_class=PageRoute)
ROWS = 50
JOBS_SHOWN = 8
SHOWN = (ConnectionStatus.NEEDS_REAUTH, ConnectionStatus.ERROR, ConnectionStatus.PAUSED)


@router.get("/tenants")
async def tenants(
    request: Request,
    viewer: ViewingOperator,
    dashboard: CurrentDashboard,
    tenant: Annotated[str, Query(max_length=300)] = "",
    after: Annotated[str, Query(max_length=4096)] = "",
) -> Response:
    """Return the tenants by name, or the page of one.

    Its name is a parameter, because it may hold anything: slashes, or `..`.
    """
    if tenant:
        return await _show_one(request, viewer, dashboard, tenant)
    engine = dashboard.engine
    found = await engine.stats.list_tenants(after=after or None, limit=ROWS)
    seen = await dashboard.providers.get()
    return dashboard.render(
        "tenants.html",
        request,
        title="Tenants",
        viewer=viewer,
        lines=found,
        shown=SHOWN,
        limits={one.tenant_id: one for one in await engine.shares.tenants()},
        paused=await engine.gates.paused_tenants(),
        floods=seen.floods,
        is_first=not after,
        next_page=link("/tenants", {"after": found.next_page}) if found.next_page else None,
        now=seen.now,
    )


async def _show_one(
    request: Request, viewer: ViewingOperator, dashboard: CurrentDashboard, tenant: str
) -> Response:
    engine = dashboard.engine
    seen = await engine.stats.overview(tenant_id=tenant)
    found = await engine.stats.providers(tenant_id=tenant, overview=seen)
    if not seen.counts.connections.count and not seen.counts.signals.count:
        raise Problem(404, "not-found", f"no connection and no signal has tenant {tenant!r}")
    newest = await engine.jobs.list(tenant_id=tenant, limit=JOBS_SHOWN)
    slowest = await engine.jobs.list(tenant_id=tenant, order=JobOrder.SLOWEST, limit=JOBS_SHOWN)
    jobs = [*newest, *slowest]
    own = next(iter(await engine.shares.tenants(tenant)), None)
    return dashboard.render(
        "tenant.html",
        request,
        title=tenant,
        viewer=viewer,
        tenant=tenant,
        whose={"tenant": tenant},
        seen=seen,
        providers=found,
        limits=own,
        switch_tenant=tenant,
        switch_pause=own.pause if own else None,
        switch_here=link("/tenants", {"tenant": tenant}),
        failures=list_failures(seen.queue, sum_counts(seen.failed.values())),
        fresh=await engine.stats.freshness(tenant_id=tenant),
        waiting=[trouble for trouble in seen.troubles if trouble.waits_for_person],
        failing=[trouble for trouble in seen.troubles if not trouble.waits_for_person],
        newest=newest,
        slowest=slowest,
        names=await engine.stats.names(job.connection_id for job in jobs),
        now=seen.now,
    )
