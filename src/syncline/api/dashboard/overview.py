"""The pages about everything at once: overview, providers, workers."""

from collections import Counter
from collections.abc import Sequence

from fastapi import APIRouter, Request, Response

from syncline.api.dashboard.charts import Chart, Entry, stack
from syncline.api.dashboard.formats import hour, number
from syncline.api.dashboard.renderer import CurrentDashboard, PageRoute
from syncline.api.login import ViewingOperator
from syncline.policy.stats import Minute, Overview, failures_by_class, sum_counts
from syncline.services.stats import MOST_A_MINUTE

router = APIRouter(include_in_schema=False, route_class=PageRoute)
OUTCOMES = {"good": "succeeded", "bad": "failed or to be retried", "open": "waiting or running"}


@router.get("/")
async def overview(
    request: Request, viewer: ViewingOperator, dashboard: CurrentDashboard
) -> Response:
    """Return the overview."""
    seen, minutes = await dashboard.overview.get(), await dashboard.minutes.get()
    return dashboard.render(
        "overview.html",
        request,
        title="Overview",
        viewer=viewer,
        seen=seen,
        fresh=await dashboard.freshness.get(),
        ill=await request.app.state.engine.health(),
        minutes=minutes,
        jobs_chart=_jobs_chart(minutes),
        signals_chart=_signals_chart(minutes),
        outcomes=OUTCOMES,
        queue=seen.queue,
        failures=_failures(seen),
        waiting=[trouble for trouble in seen.troubles if trouble.waits_for_person],
        failing=[trouble for trouble in seen.troubles if not trouble.waits_for_person],
        alive=seen.alive,
        dead=seen.dead,
    )


@router.get("/providers")
async def providers(
    request: Request, viewer: ViewingOperator, dashboard: CurrentDashboard
) -> Response:
    """Return the providers and their health."""
    seen = await dashboard.providers.get()
    return dashboard.render("providers.html", request, title="Providers", viewer=viewer, seen=seen)


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


def _jobs_chart(minutes: Sequence[Minute]) -> Chart:
    return stack(
        [
            Entry(_title_of_jobs(minute), {kind: minute.jobs.get(kind, 0) for kind in OUTCOMES})
            for minute in minutes
        ]
    )


def _title_of_jobs(minute: Minute) -> str:
    least = _sign(sum(minute.jobs.values()))
    counts = [
        f"{least}{number(minute.jobs[kind])} {outcome}"
        for kind, outcome in OUTCOMES.items()
        if minute.jobs.get(kind)
    ]
    return f"{hour(minute.at)}: {', '.join(counts) or 'none'}"


def _signals_chart(minutes: Sequence[Minute]) -> Chart:
    return stack(
        [
            Entry(
                f"{hour(minute.at)}: {_sign(minute.signals)}{number(minute.signals)}",
                {"signals": minute.signals},
            )
            for minute in minutes
        ]
    )


def _sign(counted: int) -> str:
    """Return the sign of a count that reached its bound."""
    return "≥ " if counted >= MOST_A_MINUTE else ""


def _failures(seen: Overview) -> list[tuple[str, int]]:
    failed = Counter(sum_counts(seen.failed.values()))
    return Counter(failures_by_class(seen.queue, failed)).most_common(8)
