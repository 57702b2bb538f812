"""The pages that look from above: overview, providers, workers."""

from collections import Counter
from collections.abc import Sequence

from fastapi import APIRouter, Request, Response

from syncline.api.dashboard.charts import Chart, Entry, stack
from syncline.api.dashboard.formats import hour, number
from syncline.api.dashboard.renderer import PageRoute, Shown
from syncline.api.login import ViewingOperator
from syncline.model import WorkerStatus
from syncline.services.stats import MOST_A_MINUTE, Minute, Overview
from syncline.store.stats.queue import WAITING_LOOKED_AT

router = APIRouter(include_in_schema=False, route_class=PageRoute)
OUTCOMES = {"good": "succeeded", "bad": "failed or to be retried", "open": "waiting or running"}


@router.get("/")
async def overview(request: Request, viewer: ViewingOperator, views: Shown) -> Response:
    """Return how everything stands."""
    seen = await views.overview.get()
    return views.page(
        "overview.html",
        request,
        title="Overview",
        viewer=viewer,
        seen=seen,
        fresh=await views.freshness.get(),
        ill=await request.app.state.engine.health(),
        jobs_chart=_jobs_chart(seen.minutes),
        signals_chart=_signals_chart(seen.minutes),
        outcomes=OUTCOMES,
        queue=_queue(seen),
        failures=_failures(seen),
        alive=[worker for worker in seen.workers if worker.status == WorkerStatus.ALIVE],
        dead=[worker for worker in seen.workers if worker.status == WorkerStatus.DEAD],
    )


@router.get("/providers")
async def providers(request: Request, viewer: ViewingOperator, views: Shown) -> Response:
    """Return how each provider fares."""
    seen = await views.providers.get()
    return views.page("providers.html", request, title="Providers", viewer=viewer, seen=seen)


@router.get("/workers")
async def workers(request: Request, viewer: ViewingOperator, views: Shown) -> Response:
    """Return who works here, and what runs."""
    return views.page(
        "workers.html",
        request,
        title="Workers",
        viewer=viewer,
        workers=await views.engine.workers.list(),
        leases=await views.engine.stats.leases(),
        now=await views.engine.stats.now(),
    )


def _jobs_chart(minutes: Sequence[Minute]) -> Chart:
    return stack(
        [
            Entry(_tell_jobs(minute), {kind: minute.jobs.get(kind, 0) for kind in OUTCOMES})
            for minute in minutes
        ]
    )


def _tell_jobs(minute: Minute) -> str:
    least = _sign(sum(minute.jobs.values()))
    told = [
        f"{least}{number(minute.jobs[kind])} {outcome}"
        for kind, outcome in OUTCOMES.items()
        if minute.jobs.get(kind)
    ]
    return f"{hour(minute.at)}: {', '.join(told) or 'none'}"


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
    """Return the sign of a count that ended at its bound."""
    return "≥ " if counted >= MOST_A_MINUTE else ""


def _queue(seen: Overview) -> dict[str, object]:
    queues = seen.queues.values()
    backoff = [sum(pause.count for pause in queue.pauses) for queue in queues]
    return {
        "due": sum(queue.due for queue in queues),
        "is_bounded": any(queue.is_bounded for queue in queues),
        "running": sum(queue.running for queue in queues),
        "backoff": sum(backoff),
        "is_backoff_bounded": max(backoff, default=0) >= WAITING_LOOKED_AT,
        "oldest_due_at": min(
            (one.oldest_due_at for one in queues if one.oldest_due_at), default=None
        ),
    }


def _failures(seen: Overview) -> list[tuple[str, int]]:
    found: Counter[str] = Counter()
    for queue in seen.queues.values():
        found.update(queue.failures)
    return found.most_common(8)
