"""Actions on everything that a filter matches: preview, begin, follow and cancel them."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response

from syncline.api.auth import CanOperate, CanRead, Principal, ScopedRoute, engine_of
from syncline.api.bulk import ActionOut, ActionPage, ConnectionsActionBody, JobsActionBody
from syncline.api.idempotency import answer_once
from syncline.api.requests import IdempotencyKey, Limit, Page
from syncline.api.responses import problems
from syncline.api.tenant_limits import check_storage
from syncline.errors import Invalid

router = APIRouter(prefix="/v1", tags=["actions"], route_class=ScopedRoute)


@router.post(
    "/connections/actions",
    status_code=202,
    responses=problems(409, 413, 415),
    response_model=ActionOut,
    operation_id="connections.act",
)
async def act_on_connections(
    request: Request,
    principal: CanOperate,
    body: ConnectionsActionBody,
    key: IdempotencyKey = None,
) -> Response:
    """Pause, resume, sync or set the interval of all connections that match a filter.

    With `preview` it counts only. Otherwise `expected` confirms the count, and the action goes on
    in the background; follow it at `/v1/actions/{id}`.
    """
    return await _act(request, principal, body, key)


@router.post(
    "/jobs/actions",
    status_code=202,
    responses=problems(409, 413, 415),
    response_model=ActionOut,
    operation_id="jobs.act",
)
async def act_on_jobs(
    request: Request, principal: CanOperate, body: JobsActionBody, key: IdempotencyKey = None
) -> Response:
    """Retry or cancel all jobs that match a filter, which names a status.

    Of the failed jobs of a connection, only the last one is retried. With `preview` it counts only.
    """
    return await _act(request, principal, body, key)


async def _act(
    request: Request,
    principal: Principal,
    body: ConnectionsActionBody | JobsActionBody,
    key: str | None,
) -> Response:
    bulk, wanted = engine_of(request).bulk, body.request(principal)
    if body.preview:
        preview = ActionOut.of_preview(await bulk.preview(wanted))
        return Response(preview.model_dump_json(), media_type="application/json")
    if body.expected is None:
        raise Invalid("expected", "is missing; give the count that the preview returned")
    if body.action in ("sync", "retry"):
        await check_storage(engine_of(request), principal)
    expected = body.expected
    return await answer_once(
        request,
        key,
        lambda once: bulk.start(
            wanted, expected=expected, tenant_id=principal.tenant_id, once=once
        ),
        ActionOut.of,
        status=202,
    )


@router.get("/actions", responses=problems())
async def list_actions(
    request: Request,
    principal: CanRead,
    page: Annotated[Page, Query()] = None,
    limit: Annotated[Limit, Query()] = 100,
) -> ActionPage:
    """List the actions of the last 90 days, newest first; a tenant's key sees its own."""
    found = await engine_of(request).bulk.list(
        tenant_id=principal.tenant_id, after=page, limit=limit
    )
    return ActionPage(items=[ActionOut.of(one) for one in found], next_page=found.next_page)


@router.get("/actions/{action_id}", responses=problems(404))
async def get_action(request: Request, principal: CanRead, action_id: UUID) -> ActionOut:
    """Return an action with what it has done so far, and what it refused."""
    bulk = engine_of(request).bulk
    return ActionOut.of(await bulk.get(action_id, tenant_id=principal.tenant_id))


@router.post("/actions/{action_id}/cancel", responses=problems(404, 409, 415))
async def cancel_action(request: Request, principal: CanOperate, action_id: UUID) -> ActionOut:
    """Let an action go no further. What it has done stays."""
    bulk = engine_of(request).bulk
    return ActionOut.of(await bulk.cancel(action_id, tenant_id=principal.tenant_id))
