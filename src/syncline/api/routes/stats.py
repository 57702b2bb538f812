"""`/v1/providers`, `/v1/stats`, `/v1/workers`: how everything is doing."""

from dataclasses import asdict
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Request

from syncline.api.auth import CanRead, OperatorCanRead, ScopedRoute, engine_of
from syncline.api.overview_responses import (
    DeclarationOut,
    FloodOut,
    FreshnessOut,
    HistoryOut,
    ProviderOut,
    ProvidersOut,
    StatsOut,
    TroubleOut,
    WorkerOut,
    WorkersOut,
)
from syncline.api.problems import Problem
from syncline.api.responses import problems
from syncline.policy.freshness import Freshness
from syncline.policy.stats import (
    Counts,
    Overview,
    ProviderStats,
    QueueStats,
    flood_trouble,
    provider_trouble,
    sum_counts,
    troubled_since,
)

router = APIRouter(prefix="/v1", tags=["overview"], route_class=ScopedRoute)


@router.get("/providers", responses=problems())
async def list_providers(request: Request, principal: CanRead) -> ProvidersOut:
    """Return the providers in use, with their health."""
    found = await engine_of(request).stats.providers(tenant_id=principal.tenant_id)
    return ProvidersOut(
        items=[_provider(one, found.kind) for one in found.items],
        floods=[FloodOut(**asdict(one), trouble=flood_trouble(one)) for one in found.floods],
    )


@router.get("/providers/{provider_slug}", responses=problems(404))
async def get_provider(
    request: Request,
    principal: CanRead,  # noqa: ARG001
    provider_slug: Annotated[str, Path(min_length=1, max_length=100)],
) -> DeclarationOut:
    """Return what a provider's connector declares: its title, credentials and config."""
    known = await engine_of(request).declarations.known()
    found = known.declaration(provider_slug)
    if found is None:
        reason = known.problems(provider_slug)[0].reason
        raise Problem(404, "not-found", f"provider {reason}")
    return DeclarationOut(**asdict(found))


@router.get("/stats", responses=problems())
async def get_stats(request: Request, principal: CanRead) -> StatsOut:
    """Return sums: of everything for an operator, of one tenant's rows for its key."""
    stats = engine_of(request).stats
    seen = await stats.overview(tenant_id=principal.tenant_id)
    return _stats(seen, await stats.freshness(tenant_id=principal.tenant_id))


@router.get("/stats/history", responses=problems(), operation_id="stats.history")
async def get_history(
    request: Request,
    principal: OperatorCanRead,  # noqa: ARG001
    period: Literal["1h", "24h", "7d", "90d"] = "1h",
    provider: str | None = None,
) -> HistoryOut:
    """Return what happened over a period: runs by outcome, signals, durations, delays, backlog."""
    found = await engine_of(request).stats.history(period, provider_slug=provider)
    return HistoryOut(**asdict(found))


@router.get("/workers", responses=problems())
async def list_workers(request: Request, principal: OperatorCanRead) -> WorkersOut:  # noqa: ARG001
    """Return every process that works here, and those that died within a day."""
    found = await engine_of(request).workers.list()
    shown = [{name: getattr(one, name) for name in WorkerOut.model_fields} for one in found]
    return WorkersOut(items=[WorkerOut(**one) for one in shown])


def _provider(one: ProviderStats, kind: str) -> ProviderOut:
    inexact = {"connections": kind} if kind != "exact" else {}
    if one.affected is not None and one.affected.is_bounded:
        inexact |= dict.fromkeys(("affected_connections", "affected_tenants"), "at_least")
    return ProviderOut(
        provider_slug=one.provider_slug,
        health=one.health,
        workers=one.workers,
        connections=dict(one.connections),
        running=one.queue.running,
        due=one.queue.due,
        later=one.queue.later,
        backoff=one.queue.backoff,
        rate_limited=one.queue.rate_limited,
        oldest_due_at=one.queue.oldest_due_at,
        outcomes=dict(one.recent.outcomes),
        within_seconds=one.recent.within.total_seconds(),
        failing_since=one.recent.failing_since,
        limited_since=one.recent.limited_since,
        troubled_since=troubled_since(one),
        trouble=provider_trouble(one) if one.is_unwell else None,
        affected_connections=one.affected.connections if one.affected else None,
        affected_tenants=one.affected.tenants if one.affected else None,
        inexact=inexact | _bounded(one.queue, "due", "later", "backoff", "rate_limited"),
    )


def _stats(seen: Overview, freshness: Freshness) -> StatsOut:
    queue, counts = seen.queue, seen.counts
    return StatsOut(
        now=seen.now,
        connections={name: one.count for name, one in counts.by_status.items() if one.count},
        running_jobs=queue.running,
        due_jobs=queue.due,
        later_jobs=queue.later,
        backoff_jobs=queue.backoff,
        oldest_due_at=queue.oldest_due_at,
        recent_outcomes=sum_counts(seen.outcomes.values()),
        signals=counts.signals.count,
        workers_alive=len(seen.alive),
        freshness=FreshnessOut(**asdict(freshness)),
        troubles=[TroubleOut(**asdict(one)) for one in seen.troubles],
        inexact=_estimated(counts) | _bounded(queue, "due_jobs", "later_jobs", "backoff_jobs"),
    )


def _bounded(queue: QueueStats, due: str, later: str, *backoff: str) -> dict[str, str]:
    found = dict.fromkeys((due, later), "at_least") if queue.is_bounded else {}
    return found | (dict.fromkeys(backoff, "at_least") if queue.is_backoff_bounded else {})


def _estimated(counts: Counts) -> dict[str, str]:
    found = {"connections": counts.connections.kind, "signals": counts.signals.kind}
    return {name: kind for name, kind in found.items() if kind != "exact"}
