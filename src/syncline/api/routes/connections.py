"""`/v1/connections`: add, list, change, sync and delete connections."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response

from syncline.api.auth import (
    CanAdminister,
    CanOperate,
    CanRead,
    Principal,
    ScopedRoute,
    engine_of,
)
from syncline.api.declared import Force, check_changes, check_new_connections
from syncline.api.idempotency import answer_once
from syncline.api.problems import invalid
from syncline.api.requests import (
    BulkBody,
    ConnectionQuery,
    EditBody,
    IdempotencyKey,
    IfMatch,
    NewConnectionBody,
    OneConnectionBody,
    PauseBody,
    SyncBody,
    expected_version,
)
from syncline.api.responses import (
    AddedOut,
    BulkOut,
    ConnectionOut,
    ConnectionPage,
    ExplanationOut,
    JobOut,
    etag,
    problems,
)
from syncline.api.tenant_limits import (
    check_priority,
    check_provider_of,
    check_providers,
    check_storage,
    connection_limit,
)
from syncline.errors import Invalid
from syncline.model import Connection, Scope
from syncline.services.connections import Added, NewConnection
from syncline.services.edits import UNSET, Edit, version_of

router = APIRouter(prefix="/v1/connections", tags=["connections"], route_class=ScopedRoute)


@router.get("", responses=problems())
async def list_connections(
    request: Request, principal: CanRead, query: Annotated[ConnectionQuery, Query()]
) -> ConnectionPage:
    """List connections."""
    found = await engine_of(request).connections.list(
        tenant_id=principal.sees(query.tenant),
        provider_slug=query.provider,
        statuses=query.status,
        external_id_prefix=query.prefix,
        order=query.order,
        after=query.page,
        limit=query.limit,
    )
    items = [ConnectionOut.of(one) for one in found]
    return ConnectionPage(items=items, next_page=found.next_page)


@router.post("", status_code=201, responses=problems(409, 413, 415), response_model=ConnectionOut)
async def create_connection(
    request: Request,
    principal: CanAdminister,
    body: OneConnectionBody,
    key: IdempotencyKey = None,
    force: Force = False,
) -> Response:
    """Add a connection; the next tick schedules its first run."""
    new = _new(principal, body)
    await check_providers(engine_of(request), principal, {"provider_slug": new.provider_slug})
    await check_new_connections(engine_of(request), {"": new}, force=force)
    await check_storage(engine_of(request), principal)
    at_most = connection_limit(engine_of(request), principal)
    connections = engine_of(request).connections
    return await answer_once(
        request,
        key,
        lambda once: connections.add(new, at_most=at_most, once=once),
        ConnectionOut.of,
        status=201,
    )


@router.post(
    "/bulk",
    responses=problems(409, 413, 415),
    response_model=BulkOut,
    operation_id="connections.create_many",
)
async def create_connections(
    request: Request,
    principal: CanAdminister,
    body: BulkBody,
    key: IdempotencyKey = None,
    force: Force = False,
) -> Response:
    """Add up to 10,000 connections, all or none. Existing ones stay as they are."""
    new = [
        _new(principal, one, f"connections[{place}].") for place, one in enumerate(body.connections)
    ]
    by_field = {f"connections[{n}].provider_slug": one.provider_slug for n, one in enumerate(new)}
    await check_providers(engine_of(request), principal, by_field)
    by_place = {f"connections[{place}].": one for place, one in enumerate(new)}
    await check_new_connections(engine_of(request), by_place, force=force)
    await check_storage(engine_of(request), principal)
    at_most = connection_limit(engine_of(request), principal)
    connections = engine_of(request).connections

    def shape(added: Iterable[Added]) -> BulkOut:
        items = [AddedOut(id=one.id, is_new=one.is_new) for one in added if one.id is not None]
        created = sum(one.is_new for one in items)
        return BulkOut(created=created, existing=len(items) - created, items=items)

    return await answer_once(
        request,
        key,
        lambda once: connections.create_many(new, all_or_none=True, at_most=at_most, once=once),
        shape,
        status=200,
    )


@router.get("/{connection_id}", responses=problems(404))
async def get_connection(
    request: Request, response: Response, principal: CanRead, connection_id: UUID
) -> ConnectionOut:
    """Return a connection."""
    found = await engine_of(request).connections.get(connection_id, tenant_id=principal.tenant_id)
    return _shown(found, response)


@router.patch("/{connection_id}", responses=problems(404, 412, 413, 415))
async def edit_connection(
    request: Request,
    response: Response,
    principal: CanOperate,
    connection_id: UUID,
    body: EditBody,
    if_match: IfMatch = None,
    force: Force = False,
) -> ConnectionOut:
    """Change a connection's interval, config or cursor in one step.

    A new `config` can send the credentials to another host, so it needs the scope `admin`.
    """
    named = body.model_fields_set
    if "config" in named:
        principal.check(Scope.ADMIN)
    if not named.isdisjoint(("config", "cursor")):  # what the connector gets
        await check_provider_of(engine_of(request), principal, connection_id)
    if not named:
        raise Invalid("request", "is empty; name interval_seconds, config or cursor")
    if "config" in named and not force:
        config = body.config or {}
        await check_changes(engine_of(request), principal, connection_id, config=config)
    edit = Edit(
        interval_seconds=body.interval_seconds if "interval_seconds" in named else UNSET,
        cursor=body.cursor if "cursor" in named else UNSET,
        config=(body.config or {}) if "config" in named else None,
    )
    changed = await engine_of(request).connections.edit(
        connection_id,
        edit,
        tenant_id=principal.tenant_id,
        expected=expected_version(if_match),
    )
    return _shown(changed, response)


@router.delete("/{connection_id}", status_code=204, responses=problems(404, 412))
async def delete_connection(
    request: Request,
    principal: CanAdminister,
    connection_id: UUID,
    keep_signals: bool = False,
    if_match: IfMatch = None,
) -> None:
    """Delete a connection with its jobs and, unless you keep them, its signals."""
    await engine_of(request).connections.delete(
        connection_id,
        keep_signals=keep_signals,
        tenant_id=principal.tenant_id,
        expected=expected_version(if_match),
    )


@router.post("/{connection_id}/pause", responses=problems(404, 409, 412, 415))
async def pause_connection(
    request: Request,
    response: Response,
    principal: CanOperate,
    connection_id: UUID,
    body: PauseBody | None = None,
    if_match: IfMatch = None,
) -> ConnectionOut:
    """Stop scheduling a connection. A running job finishes and its signals are kept."""
    changed = await engine_of(request).connections.pause(
        connection_id,
        reason=body.reason if body else None,
        by=principal.name,
        tenant_id=principal.tenant_id,
        expected=expected_version(if_match),
    )
    return _shown(changed, response)


@router.post("/{connection_id}/resume", responses=problems(404, 409, 412, 415))
async def resume_connection(
    request: Request,
    response: Response,
    principal: CanOperate,
    connection_id: UUID,
    if_match: IfMatch = None,
) -> ConnectionOut:
    """Activate a connection again. It continues from its cursor."""
    await check_storage(engine_of(request), principal)
    changed = await engine_of(request).connections.resume(
        connection_id, tenant_id=principal.tenant_id, expected=expected_version(if_match)
    )
    return _shown(changed, response)


@router.post(
    "/{connection_id}/sync",
    status_code=202,
    responses=problems(404, 409, 415),
    response_model=JobOut,
)
async def sync_connection(
    request: Request,
    principal: CanOperate,
    connection_id: UUID,
    body: SyncBody | None = None,
    key: IdempotencyKey = None,
) -> Response:
    """Sync now, and return the job."""
    wanted = body or SyncBody()
    check_priority(principal, wanted.priority)
    await check_storage(engine_of(request), principal)
    jobs = engine_of(request).jobs
    return await answer_once(
        request,
        key,
        lambda once: jobs.trigger(
            connection_id,
            job_type=wanted.job_type,
            priority=wanted.priority,
            tenant_id=principal.tenant_id,
            once=once,
        ),
        JobOut.of,
        status=202,
    )


@router.get("/{connection_id}/explanation", responses=problems(404))
async def explain_connection(
    request: Request, principal: CanRead, connection_id: UUID
) -> ExplanationOut:
    """Explain why a connection is, or is not, running now."""
    found = await engine_of(request).explain(connection_id, tenant_id=principal.tenant_id)
    evidence = dict(found.evidence)
    if not principal.is_operator:  # workers serve other tenants too
        evidence.pop("workers")
    return ExplanationOut(**{**asdict(found), "evidence": evidence})


def _new(principal: Principal, body: NewConnectionBody, where: str = "") -> NewConnection:
    tenant_id = principal.sees(body.tenant_id)
    if tenant_id is None:
        raise invalid([{"field": f"{where}tenant_id", "rule": "required with an operator's key"}])
    return NewConnection(
        tenant_id,
        body.provider_slug,
        body.external_id,
        body.config,
        body.interval_seconds,
        credentials=body.credentials if isinstance(body, OneConnectionBody) else None,
    )


def _shown(connection: Connection, response: Response) -> ConnectionOut:
    response.headers["ETag"] = etag(version_of(connection))
    return ConnectionOut.of(connection)
