"""The search box and its page."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import BaseModel, Field

from syncline.api.dashboard.renderer import CurrentDashboard, PageRoute
from syncline.api.login import ViewingOperator
from syncline.services.search import FOUND, Findings

router = APIRouter(include_in_schema=False, route_class=PageRoute)


class SearchQuery(BaseModel):
    """What is looked for. `list` asks for the list also where one thing has this very id."""

    q: Annotated[str, Field(max_length=1100)] = ""
    tenant: Annotated[str, Field(max_length=300)] = ""
    list: str = ""


@router.get("/search")
async def search(
    request: Request,
    viewer: ViewingOperator,
    dashboard: CurrentDashboard,
    query: Annotated[SearchQuery, Query()],
) -> Response:
    """Return what matches, or lead to the one thing that has this id."""
    text, tenant = query.q.strip(), query.tenant.strip() or None
    found, providers = Findings([], [], []), []
    if text:
        found = await dashboard.engine.search.find(text, tenant_id=tenant)
        known = await dashboard.known_providers() if tenant is None else []
        providers = [slug for slug in known if text.lower() in slug.lower()]
    if (target := _only(text, found)) and not query.list:
        return RedirectResponse(target, status_code=303)
    return dashboard.render(
        "search.html",
        request,
        title="Search",
        viewer=viewer,
        text=text,
        tenant=tenant,
        found=found,
        providers=providers,
        names=await dashboard.engine.stats.names(job.connection_id for job in found.jobs),
        is_nothing=not (found.tenants or providers or found.connections or found.jobs)
        and found.signal_id is None,
        most=FOUND,
        now=await dashboard.engine.stats.now(),
    )


def _only(text: str, found: Findings) -> str | None:
    """Return the page of the one thing whose whole id the text is."""
    try:
        id_ = UUID(text) if len(text) >= 32 else None
    except ValueError:
        return None
    if id_ is None:
        return None
    if found.signal_id == id_:
        return f"/signals?show={id_}#payload"
    paths = [f"/connections/{one.id}" for one in found.connections]
    paths += [f"/jobs/{one.id}" for one in found.jobs]
    return paths[0] if len(paths) == 1 else None
