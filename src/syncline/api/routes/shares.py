"""`/v1/tenants` and `/v1/caps`: weights, and how many jobs run at once. For operators."""

from typing import Annotated

from fastapi import APIRouter, Query, Request

from syncline.api.auth import OperatorCanAdminister, OperatorCanRead, ScopedRoute, engine_of
from syncline.api.requests import CapBody, TenantQuery, WeightBody
from syncline.api.responses import CapOut, CapsOut, TenantOut, TenantsOut, problems
from syncline.policy.shares import TenantLimits
from syncline.policy.stats import TenantLine

router = APIRouter(prefix="/v1", tags=["shares"], route_class=ScopedRoute)


@router.get("/tenants", responses=problems())
async def list_tenants(
    request: Request,
    principal: OperatorCanRead,  # noqa: ARG001
    query: Annotated[TenantQuery, Query()],
) -> TenantsOut:
    """List all tenants by name, with what is set for them; those without connections come last."""
    engine = engine_of(request)
    limits = {one.tenant_id: one for one in await engine.shares.tenants()}
    if query.only_set:
        return TenantsOut(items=[_tenant(one) for one in limits.values()])
    page = await engine.stats.list_tenants(after=query.page, limit=query.limit)
    items = [
        _tenant(limits.get(line.tenant_id) or TenantLimits(line.tenant_id, 1, None, ()), line)
        for line in page
    ]
    if page.next_page is None:
        others = await engine.stats.tenants_without_connections(limits)
        items += [_tenant(one, TenantLine(id_, {})) for id_, one in limits.items() if id_ in others]
    return TenantsOut(items=items, next_page=page.next_page)


@router.put("/tenants", responses=problems(413, 415), operation_id="tenants.set_weight")
async def set_weight(
    request: Request,
    principal: OperatorCanAdminister,  # noqa: ARG001
    body: WeightBody,
) -> TenantsOut:
    """Set a tenant's weight; every worker knows it within a second."""
    shares = engine_of(request).shares
    await shares.set_weight(body.tenant_id, body.weight)
    found = [one for one in await shares.tenants() if one.tenant_id == body.tenant_id]
    return TenantsOut(items=[_tenant(one) for one in found])


@router.get("/caps", responses=problems())
async def list_caps(request: Request, principal: OperatorCanRead) -> CapsOut:  # noqa: ARG001
    """Return all caps, and how many jobs run under each."""
    found = await engine_of(request).shares.caps()
    return CapsOut(items=[CapOut(**one.as_json()) for one in found])


@router.put("/caps", responses=problems(413, 415))
async def set_cap(
    request: Request,
    principal: OperatorCanAdminister,  # noqa: ARG001
    body: CapBody,
) -> CapsOut:
    """Set or remove a cap, of a tenant, of a provider, or of a tenant at a provider."""
    shares = engine_of(request).shares
    whose = {"tenant_id": body.tenant_id, "provider_slug": body.provider_slug}
    await shares.set_cap(body.max_running, **whose)
    found = [one.as_json() for one in await shares.caps()]
    return CapsOut(items=[CapOut(**one) for one in found if whose.items() <= one.items()])


def _tenant(limits: TenantLimits, line: TenantLine | None = None) -> TenantOut:
    if line is None:
        return TenantOut(**limits.as_json())
    inexact = {"connections": "at_least"} if line.is_bounded else {}
    return TenantOut(**limits.as_json(), connections=dict(line.by_status), inexact=inexact)
