"""The forms of the dashboard. Each is a POST with the session's CSRF token."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import RedirectResponse

from syncline.api.auth import Principal, check_csrf
from syncline.api.dashboard.renderer import CurrentDashboard, PageRoute
from syncline.api.login import ActingOperator
from syncline.api.problems import Problem
from syncline.app import Engine
from syncline.errors import Invalid, Refused
from syncline.model import JobType
from syncline.text import one_line, shortened

router = APIRouter(include_in_schema=False, route_class=PageRoute)
MOST_AT_ONCE = 500
Csrf = Annotated[str, Form(max_length=100)]
Act = Callable[[Engine, UUID, Principal], Awaitable[Any]]


async def _sync(engine: Engine, connection_id: UUID, _principal: Principal) -> None:
    await engine.trigger(connection_id)


async def _resync(engine: Engine, connection_id: UUID, _principal: Principal) -> None:
    await engine.trigger(connection_id, job_type=JobType.FULL)


async def _pause(engine: Engine, connection_id: UUID, principal: Principal) -> None:
    await engine.connections.pause(
        connection_id, by=principal.name, reason="paused on the dashboard"
    )


async def _resume(engine: Engine, connection_id: UUID, _principal: Principal) -> None:
    await engine.connections.resume(connection_id)


ACTIONS: dict[str, tuple[Act, str]] = {
    "sync": (_sync, "synced"),
    "full": (_resync, "resynced"),
    "pause": (_pause, "paused"),
    "resume": (_resume, "resumed"),
}


@dataclass(frozen=True, slots=True)
class RefusedAction:
    connection_id: UUID
    why: str


@router.post("/connections/bulk")
async def act_on_many(
    request: Request,
    viewer: ActingOperator,
    dashboard: CurrentDashboard,
    action: Annotated[str, Form(max_length=20)],
    ids: Annotated[list[UUID] | None, Form()] = None,
    here: Annotated[str, Form(max_length=4096)] = "/connections",
    csrf: Csrf = "",
) -> Response:
    """Pause, resume or sync the selected connections, and list those that refused."""
    check_csrf(viewer, csrf)
    act, outcome = _action(action)
    chosen = ids or []
    if not chosen or len(chosen) > MOST_AT_ONCE:
        raise Invalid("ids", f"names {len(chosen)} connections; choose 1 to {MOST_AT_ONCE}")
    refused = []
    for connection_id in chosen:
        try:
            await act(dashboard.engine, connection_id, viewer)
        except Refused as error:
            refused.append(RefusedAction(connection_id, shortened(one_line(str(error)), 300)))
    back = here if here.startswith("/connections") and here.isprintable() else "/connections"
    done = len(chosen) - len(refused)
    if refused:
        return dashboard.render(
            "refused.html",
            request,
            status=409,
            title="Some connections were not changed",
            viewer=viewer,
            refused=refused,
            done=done,
            action=action,
            back=back,
        )
    sign = "&" if "?" in back else "?"
    return RedirectResponse(f"{back}{sign}done={outcome}&count={done}", status_code=303)


@router.post("/connections/{connection_id}/interval")
async def set_interval(
    viewer: ActingOperator,
    dashboard: CurrentDashboard,
    connection_id: UUID,
    seconds: Annotated[str, Form(max_length=20)] = "",
    csrf: Csrf = "",
) -> Response:
    """Change how often a connection runs; an empty field means the default."""
    check_csrf(viewer, csrf)
    text = seconds.strip()
    if text and not (text.isascii() and text.isdigit()):
        raise Invalid("seconds", f"is {text!r}; it must be a whole number, or empty")
    await dashboard.engine.connections.set_interval(connection_id, int(text) if text else None)
    return RedirectResponse(f"/connections/{connection_id}?done=changed", status_code=303)


@router.post("/connections/{connection_id}/{action}")
async def act_on_one(
    viewer: ActingOperator,
    dashboard: CurrentDashboard,
    connection_id: UUID,
    action: str,
    csrf: Csrf = "",
) -> Response:
    """Sync, resync, pause or resume one connection."""
    check_csrf(viewer, csrf)
    act, outcome = _action(action)
    await act(dashboard.engine, connection_id, viewer)
    return RedirectResponse(f"/connections/{connection_id}?done={outcome}", status_code=303)


@router.post("/jobs/{job_id}/{action}")
async def act_on_job(
    viewer: ActingOperator, dashboard: CurrentDashboard, job_id: UUID, action: str, csrf: Csrf = ""
) -> Response:
    """Retry or cancel a job."""
    check_csrf(viewer, csrf)
    jobs = dashboard.engine.jobs
    acts = {"retry": jobs.retry, "cancel": jobs.cancel}
    if action not in acts:
        raise Problem(404, "not-found", "this action does not exist")
    job = await acts[action](job_id)
    return RedirectResponse(f"/jobs/{job.id}", status_code=303)


def _action(name: str) -> tuple[Act, str]:
    if name not in ACTIONS:
        raise Problem(404, "not-found", "this action does not exist")
    return ACTIONS[name]
