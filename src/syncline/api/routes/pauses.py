"""`/v1/pauses`: the switches that stop a whole tenant or provider. For operators."""

from fastapi import APIRouter, Request

from syncline.api.auth import OperatorCanOperate, OperatorCanRead, ScopedRoute, engine_of
from syncline.api.requests import SwitchBody
from syncline.api.responses import PauseOut, PausesOut, problems

router = APIRouter(prefix="/v1", tags=["pauses"], route_class=ScopedRoute)


@router.get("/pauses", responses=problems())
async def list_pauses(request: Request, principal: OperatorCanRead) -> PausesOut:  # noqa: ARG001
    """Return the tenants and providers that are paused."""
    return PausesOut(items=await _pauses(request))


@router.put("/pauses", responses=problems(413, 415))
async def set_pause(request: Request, principal: OperatorCanOperate, body: SwitchBody) -> PausesOut:
    """Pause or resume a tenant or a provider; every worker knows it within a second.

    None of its jobs start while it is paused, of connections added later neither. Connections
    keep their status. Running jobs end as usual.
    """
    connections = engine_of(request).connections
    whose = {"tenant_id": body.tenant_id, "provider_slug": body.provider_slug}
    if body.paused:
        await connections.pause(reason=body.reason, by=principal.name, **whose)
    else:
        await connections.resume(**whose)
    found = await _pauses(request)
    return PausesOut(
        items=[
            one
            for one in found
            if (one.tenant_id, one.provider_slug) == (body.tenant_id, body.provider_slug)
        ]
    )


async def _pauses(request: Request) -> list[PauseOut]:
    gates = engine_of(request).gates
    tenants = await gates.paused_tenants()
    providers = [gate for gate in await gates.list() if gate.paused_at is not None]
    return [
        *(
            PauseOut(tenant_id=one.tenant_id, paused_at=one.paused_at, reason=one.paused_because)
            for one in tenants
        ),
        *(
            PauseOut(
                provider_slug=one.provider_slug, paused_at=one.paused_at, reason=one.paused_because
            )
            for one in providers
            if one.paused_at is not None
        ),
    ]
