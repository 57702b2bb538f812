"""The forms that add a connection, edit it, and give it new credentials."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse

from syncline.api.auth import Principal
from syncline.api.dashboard.actions import ADDED, ADDED_AND_SYNCED, EDITED, RECONNECTED
from syncline.api.dashboard.form_fields import Field
from syncline.api.dashboard.renderer import CurrentDashboard, Dashboard, PageRoute
from syncline.api.dashboard.submitted import (
    Submitted,
    credential_values,
    forms_of,
    note_problems,
    read_submitted,
)
from syncline.api.login import ActingOperator, AdministeringOperator
from syncline.errors import Changed, Refused, SettingsError
from syncline.model import Connection, ConnectionStatus, Scope
from syncline.policy.schedule import MINIMUM_INTERVAL_SECONDS, sync_of
from syncline.services.connections import NewConnection
from syncline.services.declarations import KnownProviders
from syncline.services.edits import UNSET, Edit, version_of

router = APIRouter(include_in_schema=False, route_class=PageRoute)
Text = Annotated[str, Query(max_length=1100)]
INTERVAL, CURSOR, FORCE, SYNC = "interval_seconds", "cursor", "force", "sync"
KEY = ("tenant_id", "provider_slug", "external_id")


# Adding


@router.get("/connections/new")
async def show_new(
    request: Request,
    viewer: AdministeringOperator,
    dashboard: CurrentDashboard,
    provider: Text = "",
    tenant: Text = "",
) -> Response:
    """Return the form of a new connection, or the providers to choose from."""
    known = await dashboard.engine.declarations.known()
    if provider.strip():
        typed = {"provider_slug": provider.strip(), "tenant_id": tenant}
        return await _render_new(request, viewer, dashboard, known, Submitted(typed))
    return dashboard.render(
        "add_provider.html",
        request,
        title="Add a connection",
        viewer=viewer,
        declared=[one for slug in known.names if (one := known.declaration(slug))],
        tenant=tenant,
    )


@router.post("/connections/new")
async def add(
    request: Request, viewer: AdministeringOperator, dashboard: CurrentDashboard
) -> Response:
    """Add a connection, sync it if that is ticked, and show its page."""
    sent = await read_submitted(request, viewer)
    engine = dashboard.engine
    known = await engine.declarations.known()
    new = _read_new(sent, known)
    if not sent.errors and new is not None:
        try:
            added = await engine.connections.add(new)
        except (Refused, SettingsError) as error:
            sent.refuse(error)
        else:
            if sent.is_ticked(SYNC):
                await engine.trigger(added.id)
            done = ADDED_AND_SYNCED if sent.is_ticked(SYNC) else ADDED
            return RedirectResponse(f"/connections/{added.id}?done={done.name}", status_code=303)
    return await _render_new(request, viewer, dashboard, known, sent)


def _read_new(sent: Submitted, known: KnownProviders) -> NewConnection | None:
    """Return the connection that was typed, or note what is wrong."""
    tenant, provider, external_id = (sent.typed.get(name, "").strip() for name in KEY)
    for name, text in zip(KEY, (tenant, provider, external_id), strict=True):
        if not text:
            sent.errors[name] = "Is missing"
    form, credentials_form = forms_of(known.declaration(provider))
    config, config_errors = form.read(sent.typed)
    credentials, credential_errors = credentials_form.read(sent.typed)
    interval = _read_interval(sent)
    sent.errors |= config_errors | credential_errors
    if not sent.is_ticked(FORCE):
        note_problems(sent, form, known.problems(provider, config, credentials))
    if sent.errors:
        return None
    return NewConnection(tenant, provider, external_id, config, interval, credentials)


async def _render_new(
    request: Request,
    viewer: Principal,
    dashboard: Dashboard,
    known: KnownProviders,
    sent: Submitted,
) -> Response:
    provider = sent.typed.get("provider_slug", "")
    declaration = known.declaration(provider)
    is_sent = request.method == "POST"
    form, credentials_form = forms_of(declaration)
    return dashboard.render(
        "add.html",
        request,
        status=422 if sent.errors else 200,
        title="Add a connection",
        viewer=viewer,
        provider=provider,
        declaration=declaration,
        sent=sent,
        key_fields=_key_fields(sent),
        config_fields=form.fields(sent.typed if is_sent else None, sent.errors),
        interval=_interval_field(dashboard, sent, None),
        tenants=await dashboard.tenants.get(),
        syncs=not is_sent or sent.is_ticked(SYNC),
        **credential_values(credentials_form, sent),
    )


def _key_fields(sent: Submitted) -> list[Field]:
    labels = {
        "tenant_id": ("Tenant", "The customer whose data it is, as your application names it."),
        "external_id": (
            "External id",
            "Its name at the provider. No two connections of a tenant and provider share one.",
        ),
    }
    return [
        Field(
            name,
            label,
            value=sent.typed.get(name, ""),
            hint=hint,
            is_required=True,
            error=sent.errors.get(name, ""),
        )
        for name, (label, hint) in labels.items()
    ]


# Editing


@router.get("/connections/{connection_id}/edit")
async def show_edit(
    request: Request, viewer: ActingOperator, dashboard: CurrentDashboard, connection_id: UUID
) -> Response:
    """Return the form that edits a connection."""
    connection = await dashboard.engine.connections.get(connection_id)
    return await _render_edit(request, viewer, dashboard, connection, Submitted({}))


@router.post("/connections/{connection_id}/edit")
async def edit(
    request: Request, viewer: ActingOperator, dashboard: CurrentDashboard, connection_id: UUID
) -> Response:
    """Change a connection's config, interval and cursor in one step."""
    sent = await read_submitted(request, viewer)
    engine = dashboard.engine
    connection = await engine.connections.get(connection_id)
    known = await engine.declarations.known()
    changes = _read_edit(sent, known, connection, viewer)
    if not sent.errors:
        try:
            expected = sent.typed.get("version")
            await engine.connections.edit(connection_id, changes, expected=expected)
        except Changed:
            connection = await engine.connections.get(connection_id)
            sent.errors[""] = CHANGED
        except Refused as error:
            sent.refuse(error)
        else:
            page = f"/connections/{connection_id}?done={EDITED.name}"
            return RedirectResponse(page, status_code=303)
    return await _render_edit(request, viewer, dashboard, connection, sent)


CHANGED = (
    "Somebody changed this connection while you edited it. What you typed is below; "
    "save it again to replace their change."
)


def _read_edit(
    sent: Submitted, known: KnownProviders, connection: Connection, viewer: Principal
) -> Edit:
    """Return the changes that were typed, or note what is wrong."""
    interval = _read_interval(sent)
    cursor = sent.read(CURSOR, "json") if sent.typed.get(CURSOR, "").strip() else UNSET
    config = None
    if viewer.may(Scope.ADMIN):  # a new config can send the credentials to another host
        declaration = known.declaration(connection.provider_slug)
        form, _ = forms_of(declaration, connection.config)
        config, errors = form.read(sent.typed)
        sent.errors |= errors
        if declaration is not None and not sent.is_ticked(FORCE):
            note_problems(sent, form, known.problems(connection.provider_slug, config))
    return Edit(interval_seconds=interval, cursor=cursor, config=config)


async def _render_edit(
    request: Request,
    viewer: Principal,
    dashboard: Dashboard,
    connection: Connection,
    sent: Submitted,
) -> Response:
    known = await dashboard.engine.declarations.known()
    declaration = known.declaration(connection.provider_slug)
    form, _ = forms_of(declaration, connection.config)
    typed = sent.typed if request.method == "POST" else None
    return dashboard.render(
        "edit.html",
        request,
        status=422 if sent.errors else 200,
        title=f"Edit {connection.external_id}",
        viewer=viewer,
        connection=connection,
        declaration=declaration,
        sent=sent,
        config_fields=form.fields(typed, sent.errors),
        interval=_interval_field(dashboard, sent, connection),
        cursor=Field(
            CURSOR,
            "New cursor",
            "json",
            sent.typed.get(CURSOR, ""),
            "JSON. The next run starts there. Leave it empty to keep the cursor.",
            error=sent.errors.get(CURSOR, ""),
        ),
        edited_version=version_of(connection),
    )


# Reconnecting


@router.get("/connections/{connection_id}/reconnect")
async def show_reconnect(
    request: Request,
    viewer: AdministeringOperator,
    dashboard: CurrentDashboard,
    connection_id: UUID,
) -> Response:
    """Return the form for new credentials."""
    connection = await dashboard.engine.connections.get(connection_id)
    return await _render_reconnect(request, viewer, dashboard, connection, Submitted({}))


@router.post("/connections/{connection_id}/reconnect")
async def reconnect(
    request: Request,
    viewer: AdministeringOperator,
    dashboard: CurrentDashboard,
    connection_id: UUID,
) -> Response:
    """Store new credentials. A connection that needed them is active again, and syncs."""
    sent = await read_submitted(request, viewer)
    connections = dashboard.engine.connections
    connection = await connections.get(connection_id)
    known = await dashboard.engine.declarations.known()
    declaration = known.declaration(connection.provider_slug)
    config_form, form = forms_of(declaration, may_be_none=False)
    credentials, errors = form.read(sent.typed)
    sent.errors |= errors
    if declaration is not None and not sent.is_ticked(FORCE):
        problems = known.problems(connection.provider_slug, None, credentials)
        note_problems(sent, config_form, problems)
    if not sent.errors:
        try:
            changed = await connections.set_credentials(connection_id, credentials)
        except (Refused, SettingsError) as error:
            sent.refuse(error)
        else:
            if changed.status == ConnectionStatus.ACTIVE:
                await dashboard.engine.trigger(connection_id)
            page = f"/connections/{connection_id}?done={RECONNECTED.name}"
            return RedirectResponse(page, status_code=303)
    return await _render_reconnect(request, viewer, dashboard, connection, sent)


async def _render_reconnect(
    request: Request,
    viewer: Principal,
    dashboard: Dashboard,
    connection: Connection,
    sent: Submitted,
) -> Response:
    known = await dashboard.engine.declarations.known()
    declaration = known.declaration(connection.provider_slug)
    _, form = forms_of(declaration, may_be_none=False)
    return dashboard.render(
        "reconnect.html",
        request,
        status=422 if sent.errors else 200,
        title=f"Reconnect {connection.external_id}",
        viewer=viewer,
        connection=connection,
        declaration=declaration,
        sent=sent,
        **credential_values(form, sent),
    )


# What the forms share


def _read_interval(sent: Submitted) -> int | None:
    text = sent.typed.get(INTERVAL, "").strip()
    if text and not (text.isascii() and text.isdecimal() and len(text) < 12):
        sent.errors[INTERVAL] = "Must be a whole number of seconds, or empty"
        return None
    return int(text) if text else None


def _interval_field(dashboard: Dashboard, sent: Submitted, connection: Connection | None) -> Field:
    scheduler = dashboard.engine.settings.scheduler
    longest = scheduler.max_overridden_interval_seconds
    stored = sync_of(connection.metadata).get(INTERVAL) if connection is not None else None
    value = sent.typed.get(INTERVAL, "" if stored is None else str(stored))
    return Field(
        INTERVAL,
        "Interval",
        "number",
        value,
        f"Seconds between two runs, {MINIMUM_INTERVAL_SECONDS:,} to {longest:,}. "
        "Leave it empty for the default.",
        default=str(scheduler.default_interval_seconds),
        error=sent.errors.get(INTERVAL, ""),
        minimum=MINIMUM_INTERVAL_SECONDS,
        maximum=longest,
    )
