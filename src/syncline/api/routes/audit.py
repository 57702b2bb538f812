"""`/v1/audit`: who changed what, and when."""

from typing import Annotated

from fastapi import APIRouter, Query, Request

from syncline.api.audit_responses import ActOut, AuditPage
from syncline.api.auth import CanRead, ScopedRoute, engine_of
from syncline.api.requests import AuditQuery
from syncline.api.responses import problems

router = APIRouter(prefix="/v1/audit", tags=["audit"], route_class=ScopedRoute)


@router.get("", responses=problems(), operation_id="audit.list")
async def list_audit(
    request: Request, principal: CanRead, query: Annotated[AuditQuery, Query()]
) -> AuditPage:
    """List who changed what, newest first. A tenant's key sees what happened to its own rows."""
    found = await engine_of(request).audit.list(
        tenant_id=principal.sees(query.tenant),
        provider_slug=query.provider,
        connection_id=query.connection,
        actor=query.actor,
        action=query.action,
        since=query.since,
        until=query.until,
        after=query.page,
        limit=query.limit,
    )
    return AuditPage(items=[ActOut.of(one) for one in found], next_page=found.next_page)
