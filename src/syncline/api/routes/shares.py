"""`/v1/tenants` and `/v1/caps`: weights, and how many jobs run at once. For operators."""

from fastapi import APIRouter, Request

from syncline.api.auth import OperatorCanAdminister, OperatorCanRead, ScopedRoute, engine_of
from syncline.api.requests import CapBody, WeightBody
from syncline.api.responses import CapOut, CapsOut, TenantOut, TenantsOut, problems

router = APIRouter(prefix="/v1", tags=["shares"], route_class=ScopedRoute)


@router.get("/tenants", responses=problems())
async def list_tenants(request: Request, principal: OperatorCanRead) -> TenantsOut:  # noqa: ARG001
    """Return tenants that have a weight or a cap, or ask for more than their share now."""
    found = await engine_of(request).shares.tenants()
    return TenantsOut(items=[TenantOut(**one.as_json()) for one in found])


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
    return TenantsOut(items=[TenantOut(**one.as_json()) for one in found])


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
