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


@dataclass(frozen=True, slots=True)
class Done:
    """What a form has done: its name in the address of the next page, and what that page says."""

    name: str
    one: str
    many: str

    def sentence(self, count: int) -> str:
        return f"1 connection {self.one}." if count == 1 else f"{count:,} connections {self.many}."


ACTIONS: dict[str, tuple[Act, Done]] = {
    "sync": (_sync, Done("synced", "is queued to sync now", "are queued to sync now")),
    "full": (
        _resync,
        Done("resynced", "is queued for a full resync", "are queued for a full resync"),
    ),
    "pause": (_pause, Done("paused", "is paused", "are paused")),
    "resume": (_resume, Done("resumed", "is active again", "are active again")),
}
INTERVAL_CHANGED = Done("changed", "has a new interval", "have a new interval")
ADDED = Done("added", "was added. The next tick schedules it", "were added")
ADDED_AND_SYNCED = Done("syncing", "was added, and is queued to sync now", "were added")
EDITED = Done("edited", "was saved", "were saved")
RECONNECTED = Done("reconnected", "has new credentials", "have new credentials")
FORMS = (INTERVAL_CHANGED, ADDED, ADDED_AND_SYNCED, EDITED, RECONNECTED)
BY_NAME = {done.name: done for done in (*FORMS, *(done for _, done in ACTIONS.values()))}


def done_sentence(request: Request) -> str:
    """Return the sentence for the action that the address names; only our own sentences."""
    done = BY_NAME.get(request.query_params.get("done", ""))
    count = request.query_params.get("count", "1")
    if done is None or not (count.isascii() and count.isdigit()) or len(count) > 6:
        return ""
    return done.sentence(int(count))


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
    act, done = _action(action)
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
    count = len(chosen) - len(refused)
    if refused:
        return dashboard.render(
            "refused.html",
            request,
            status=409,
            title="Some connections were not changed",
            viewer=viewer,
            refused=refused,
            done=count,
            action=action,
            back=back,
        )
    sign = "&" if "?" in back else "?"
    return RedirectResponse(f"{back}{sign}done={done.name}&count={count}", status_code=303)


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
    page = f"/connections/{connection_id}?done={INTERVAL_CHANGED.name}"
    return RedirectResponse(page, status_code=303)


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
    act, done = _action(action)
    await act(dashboard.engine, connection_id, viewer)
    return RedirectResponse(f"/connections/{connection_id}?done={done.name}", status_code=303)


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


def _action(name: str) -> tuple[Act, Done]:
    if name not in ACTIONS:
        raise Problem(404, "not-found", "this action does not exist")
    return ACTIONS[name]
