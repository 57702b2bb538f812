"""Pages that act on everything a list shows: preview, confirm, follow; and the pause switches."""

from typing import Annotated, Any
from urllib.parse import urlencode
from uuid import UUID

from fastapi import APIRouter, Form, Query, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import ValidationError

from syncline.api.auth import check_csrf
from syncline.api.dashboard.connections import ConnectionsQuery
from syncline.api.dashboard.records import JobsQuery, job_filter
from syncline.api.dashboard.renderer import CurrentDashboard, PageRoute
from syncline.api.login import ActingOperator, ViewingOperator
from syncline.app import Engine
from syncline.errors import Invalid
from syncline.model import ConnectionFilter, JobFilter
from syncline.policy.bulk import BulkAction, BulkVerb, Target, filter_as_json
from syncline.services.bulk import BulkRequest

router = APIRouter(include_in_schema=False, route_class=PageRoute)
ROWS = 50
Text = Annotated[str, Form(max_length=1100)]
WORDS = {  # of a button, and of what has been done
    BulkVerb.PAUSE: ("Pause", "paused"),
    BulkVerb.RESUME: ("Resume", "resumed"),
    BulkVerb.SYNC: ("Sync", "queued to sync"),
    BulkVerb.SET_INTERVAL: ("Set the interval of", "changed"),
    BulkVerb.RETRY: ("Retry", "retried"),
    BulkVerb.CANCEL: ("Cancel", "cancelled"),
}


async def _wanted(engine: Engine, request: Request, target: str) -> ConnectionFilter | JobFilter:
    """Return the filter of the list that the address comes from."""
    given = {name: value for name, value in request.query_params.items() if value}
    try:
        if target == Target.JOBS:
            jobs = JobsQuery.model_validate(given)
            return JobFilter(**job_filter(jobs, await engine.stats.now()))
        query = ConnectionsQuery.model_validate(given)
    except ValidationError as error:
        wrong = error.errors()[0]
        raise Invalid(str(wrong["loc"][0]), wrong["msg"]) from None
    return ConnectionFilter(
        tenant_id=query.tenant.strip() or None,
        provider_slug=query.provider or None,
        status=query.status or None,
        external_id_prefix=query.q.strip() or None,
    )


@router.get("/actions")
async def list_actions(
    request: Request,
    viewer: ViewingOperator,
    dashboard: CurrentDashboard,
    after: Annotated[str, Query(max_length=4096)] = "",
) -> Response:
    """Return the actions of the last 90 days."""
    found = await dashboard.engine.bulk.list(after=after or None, limit=ROWS)
    return dashboard.render(
        "actions.html",
        request,
        title="Actions on many",
        viewer=viewer,
        actions=found,
        words=WORDS,
        described=_described,
        next_page=f"/actions?{urlencode({'after': found.next_page})}" if found.next_page else None,
        is_first=not after,
        now=await dashboard.engine.stats.now(),
    )


@router.get("/actions/new")
async def preview_action(
    request: Request,
    viewer: ViewingOperator,
    dashboard: CurrentDashboard,
    action: Annotated[str, Query(max_length=20)],
    target: Annotated[str, Query(pattern="^(connections|jobs)$")] = Target.CONNECTIONS,
) -> Response:
    """Return what an action would have to do, with the button that begins it."""
    engine = dashboard.engine
    wanted = await _wanted(engine, request, target)
    preview = await engine.bulk.preview(BulkRequest(action, wanted))
    verb, _ = WORDS[BulkVerb(action)]  # the preview has refused any other
    rest = {
        name: value
        for name, value in request.query_params.items()
        if name not in ("action", "target", "after", "here") and value
    }
    ids = [getattr(one, "connection_id", one.id) for one in preview.first]
    return dashboard.render(
        "action_new.html",
        request,
        title=f"{verb} many {target}",
        viewer=viewer,
        verb=verb,
        action=action,
        preview=preview,
        target=target,
        described=_described(wanted),
        names=await engine.stats.names(ids) if target == Target.JOBS else {},
        here=f"/actions/new?{request.url.query}",
        back=f"/{target}?{urlencode(rest)}" if rest else f"/{target}",
        now=await engine.stats.now(),
    )


@router.post("/actions/new")
async def start_action(
    request: Request,
    viewer: ActingOperator,
    dashboard: CurrentDashboard,
    action: Annotated[str, Query(max_length=20)],
    expected: Annotated[int, Form(ge=0)],
    target: Annotated[str, Query(pattern="^(connections|jobs)$")] = Target.CONNECTIONS,
    seconds: Annotated[str, Form(max_length=20)] = "",
    reason: Text = "",
    csrf: Annotated[str, Form(max_length=100)] = "",
) -> Response:
    """Begin an action on as many rows as the preview counted."""
    check_csrf(viewer, csrf)
    text = seconds.strip()
    if text and not (text.isascii() and text.isdigit()):
        raise Invalid("seconds", f"is {text!r}; it must be a whole number, or empty")
    wanted = await _wanted(dashboard.engine, request, target)
    given = BulkRequest(action, wanted, int(text) if text else None, reason.strip() or None)
    begun = await dashboard.engine.bulk.start(given, expected=expected)
    return RedirectResponse(f"/actions/{begun.id}", status_code=303)


@router.get("/actions/{action_id}")
async def show_action(
    request: Request, viewer: ViewingOperator, dashboard: CurrentDashboard, action_id: UUID
) -> Response:
    """Return how far an action has come, and what it refused."""
    one = await dashboard.engine.bulk.get(action_id)
    verb, done = WORDS[one.action]
    return dashboard.render(
        "action.html",
        request,
        title=f"{verb} {one.expected:,} {one.target}",
        viewer=viewer,
        one=one,
        verb=verb,
        done=done,
        described=_described(one.wanted),
        place="/jobs/" if one.target is Target.JOBS else "/connections/",
        now=await dashboard.engine.stats.now(),
    )


@router.post("/actions/{action_id}/cancel")
async def cancel_action(
    viewer: ActingOperator,
    dashboard: CurrentDashboard,
    action_id: UUID,
    csrf: Annotated[str, Form(max_length=100)] = "",
) -> Response:
    """Let an action go no further."""
    check_csrf(viewer, csrf)
    await dashboard.engine.bulk.cancel(action_id)
    return RedirectResponse(f"/actions/{action_id}", status_code=303)


@router.post("/pause")
async def turn_switch(
    viewer: ActingOperator,
    dashboard: CurrentDashboard,
    paused: Annotated[str, Form(pattern="^(yes|no)$")],
    tenant: Text = "",
    provider: Text = "",
    reason: Text = "",
    here: Annotated[str, Form(max_length=4096)] = "/",
    csrf: Annotated[str, Form(max_length=100)] = "",
) -> Response:
    """Pause or resume a whole tenant or provider, and return to its page."""
    check_csrf(viewer, csrf)
    connections = dashboard.engine.connections
    whose: dict[str, Any] = {"tenant_id": tenant or None, "provider_slug": provider or None}
    if paused == "yes":
        await connections.pause(reason=reason.strip() or None, by=viewer.name, **whose)
    else:
        await connections.resume(**whose)
    shown = here.isprintable() and here.startswith(("/connections", "/providers", "/tenants"))
    return RedirectResponse(here if shown else "/", status_code=303)


def _described(wanted: BulkAction | ConnectionFilter | JobFilter) -> str:
    """Return a filter as people say it."""
    chosen = wanted.wanted if isinstance(wanted, BulkAction) else wanted
    shown = {name.removesuffix("_id"): value for name, value in filter_as_json(chosen).items()}
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in shown.items())
