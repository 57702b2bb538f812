"""`/v1/connections/ID/credentials`: write-only credentials of a connection."""

from uuid import UUID

from fastapi import APIRouter, Request

from syncline.api.auth import CanAdminister, ScopedRoute, engine_of
from syncline.api.declared import Force, check_changes
from syncline.api.requests import CredentialsBody
from syncline.api.responses import ConnectionOut, problems
from syncline.api.tenant_limits import check_provider_of

router = APIRouter(
    prefix="/v1/connections/{connection_id}/credentials",
    tags=["connections"],
    route_class=ScopedRoute,
)


@router.put("", responses=problems(404, 409, 413, 415), operation_id="connections.set_credentials")
async def set_credentials(
    request: Request,
    principal: CanAdminister,
    connection_id: UUID,
    body: CredentialsBody,
    force: Force = False,
) -> ConnectionOut:
    """Replace a connection's credentials. If it needs_reauth, it becomes active again."""
    await check_provider_of(engine_of(request), principal, connection_id)
    if not force:
        given = body.credentials
        await check_changes(engine_of(request), principal, connection_id, credentials=given)
    changed = await engine_of(request).connections.set_credentials(
        connection_id, body.credentials, tenant_id=principal.tenant_id
    )
    return ConnectionOut.of(changed)


@router.delete("", responses=problems(404), operation_id="connections.forget_credentials")
async def forget_credentials(
    request: Request, principal: CanAdminister, connection_id: UUID
) -> ConnectionOut:
    """Delete a connection's credentials."""
    changed = await engine_of(request).connections.set_credentials(
        connection_id, None, tenant_id=principal.tenant_id
    )
    return ConnectionOut.of(changed)
