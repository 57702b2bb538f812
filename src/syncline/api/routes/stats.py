"""`/v1/providers`, `/v1/stats`, `/v1/workers`: how everything fares."""

from dataclasses import asdict

from fastapi import APIRouter, Request

from syncline.api.auth import CanRead, OperatorCanRead, ScopedRoute
from syncline.api.idempotency import engine_of, problems
from syncline.api.responses import ProviderOut, ProvidersOut, StatsOut, WorkerOut, WorkersOut

router = APIRouter(prefix="/v1", tags=["overview"], route_class=ScopedRoute)


@router.get("/providers", responses=problems())
async def list_providers(request: Request, principal: CanRead) -> ProvidersOut:
    """Return the providers in use, with their health."""
    found = await engine_of(request).overview.providers(tenant_id=principal.tenant_id)
    return ProvidersOut(
        items=[
            ProviderOut(**asdict(one.view), health=one.health, workers=one.workers) for one in found
        ]
    )


@router.get("/stats", responses=problems())
async def get_stats(request: Request, principal: CanRead) -> StatsOut:
    """Return sums: of everything for an operator, of one tenant's rows for its key."""
    return StatsOut(
        **asdict(await engine_of(request).overview.stats(tenant_id=principal.tenant_id))
    )


@router.get("/workers", responses=problems())
async def list_workers(request: Request, principal: OperatorCanRead) -> WorkersOut:  # noqa: ARG001
    """Return every process that works here, and those that died within a day."""
    found = await engine_of(request).workers.list()
    shown = [{name: getattr(one, name) for name in WorkerOut.model_fields} for one in found]
    return WorkersOut(items=[WorkerOut(**one) for one in shown])
