"""`/v1/connections/ID/credentials`: what a connection signs in with, written and never read."""

from uuid import UUID

from fastapi import APIRouter, Request

from syncline.api.auth import CanAdminister, ScopedRoute
from syncline.api.idempotency import engine_of, problems
from syncline.api.requests import CredentialsBody
from syncline.api.responses import ConnectionOut
from syncline.api.tenant_providers import check_provider_of

router = APIRouter(
    prefix="/v1/connections/{connection_id}/credentials",
    tags=["connections"],
    route_class=ScopedRoute,
)


@router.put("", responses=problems(404, 409, 413, 415))
async def set_credentials(
    request: Request,
    principal: CanAdminister,
    connection_id: UUID,
    body: CredentialsBody,
) -> ConnectionOut:
    """Change what a connection signs in with; one that needed that goes on from its cursor."""
    await check_provider_of(engine_of(request), principal, connection_id)
    changed = await engine_of(request).connections.set_credentials(
        connection_id, body.credentials, tenant_id=principal.tenant_id
    )
    return ConnectionOut.of(changed)


@router.delete("", responses=problems(404))
async def forget_credentials(
    request: Request, principal: CanAdminister, connection_id: UUID
) -> ConnectionOut:
    """Forget what a connection signs in with."""
    changed = await engine_of(request).connections.set_credentials(
        connection_id, None, tenant_id=principal.tenant_id
    )
    return ConnectionOut.of(changed)
