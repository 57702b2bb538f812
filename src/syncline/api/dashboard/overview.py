"""The pages about everything at once: overview and workers."""

from typing import Literal

from fastapi import APIRouter, Request, Response

from syncline.api.dashboard.history_charts import draw_history
from syncline.api.dashboard.renderer import CurrentDashboard, PageRoute
from syncline.api.login import ViewingOperator
from syncline.policy.figures import PERIODS
from syncline.policy.stats import list_failures, sum_counts

router = APIRouter(include_in_schema=False, route_class=PageRoute)


@router.get("/")
async def overview(
    request: Request,
    viewer: ViewingOperator,
    dashboard: CurrentDashboard,
    period: Literal["1h", "24h", "7d", "90d"] = "1h",
) -> Response:
    """Return the overview, with charts of this period."""
    seen, history = await dashboard.overview.get(), await dashboard.history[period].get()
    found = await dashboard.providers.get()
    return dashboard.render(
        "overview.html",
        request,
        title="Overview",
        viewer=viewer,
        seen=seen,
        fresh=await dashboard.freshness.get(),
        ill=await request.app.state.engine.health(),
        history=history,
        periods=list(PERIODS),
        charts=draw_history(history),
        unwell=[one for one in found.items if one.is_unwell],
        floods=found.floods,
        paused=await dashboard.engine.gates.paused_tenants(),
        queue=seen.queue,
        failures=list_failures(seen.queue, sum_counts(seen.failed.values())),
        waiting=[trouble for trouble in seen.troubles if trouble.waits_for_person],
        failing=[trouble for trouble in seen.troubles if not trouble.waits_for_person],
        alive=seen.alive,
        dead=seen.dead,
    )


@router.get("/workers")
async def workers(
    request: Request, viewer: ViewingOperator, dashboard: CurrentDashboard
) -> Response:
    """Return the workers and the running jobs."""
    return dashboard.render(
        "workers.html",
        request,
        title="Workers",
        viewer=viewer,
        workers=await dashboard.engine.workers.list(),
        leases=await dashboard.engine.stats.leases(),
        now=await dashboard.engine.stats.now(),
    )
