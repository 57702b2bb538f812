"""The page of the audit: who changed what, and when."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from syncline.api.dashboard.filters import link, read_time
from syncline.api.dashboard.renderer import CurrentDashboard, PageRoute
from syncline.api.login import ViewingOperator
from syncline.policy.audit import Action

router = APIRouter(include_in_schema=False, route_class=PageRoute)
ROWS = 50
VIEWS: tuple[tuple[str, dict[str, str | None]], ...] = (
    ("The last day", {"from": "24h"}),
    ("Invalid keys", {"action": Action.SESSIONS_REFUSE}),
    ("Pauses", {"action": Action.CONNECTIONS_PAUSE}),
    ("Deleted connections", {"action": Action.CONNECTIONS_DELETE}),
)
Text = Annotated[str, Field(max_length=300)]


class AuditQuery(BaseModel):
    """The filters of the page, as they appear in the address."""

    tenant: Text = ""
    provider: Text = ""
    actor: Text = ""
    action: Text = ""
    since: Text = Field("", alias="from")
    until: Text = Field("", alias="to")
    connection: UUID | None = None
    after: Annotated[str, Field(max_length=4096)] = ""


@router.get("/audit")
async def list_audit(
    request: Request,
    viewer: ViewingOperator,
    dashboard: CurrentDashboard,
    query: Annotated[AuditQuery, Query()],
) -> Response:
    """Return what was done, newest first."""
    now = await dashboard.engine.stats.now()
    filters = query.model_dump(exclude={"after"}, by_alias=True)
    wanted = {name: str(value or "") for name, value in filters.items()}
    found = await dashboard.engine.audit.list(
        tenant_id=query.tenant.strip() or None,
        provider_slug=query.provider or None,
        connection_id=query.connection,
        actor=query.actor.strip() or None,
        action=query.action or None,
        since=read_time("from", query.since, now),
        until=read_time("to", query.until, now),
        after=query.after or None,
        limit=ROWS,
    )
    return dashboard.render(
        "audit.html",
        request,
        title="Audit",
        viewer=viewer,
        wanted=wanted,
        acts=found,
        actions=list(Action),
        views=[(title, link("/audit", view)) for title, view in VIEWS],
        is_filtered=any(wanted.values()),
        first_page=link("/audit", wanted),
        next_page=link("/audit", wanted, after=found.next_page) if found.next_page else None,
        is_first=not query.after,
        tenants=await dashboard.tenants.get(),
        providers=await dashboard.known_providers(),
        now=now,
    )
