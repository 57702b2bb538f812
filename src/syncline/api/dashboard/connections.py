"""The pages about connections: the list, and one connection with its explanation."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any
from urllib.parse import urlencode
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import BaseModel, Field

from syncline.api.dashboard.actions import done_sentence
from syncline.api.dashboard.charts import Chart, Entry, stack
from syncline.api.dashboard.renderer import CurrentDashboard, PageRoute
from syncline.api.login import ViewingOperator
from syncline.app import Engine
from syncline.connection_name import ConnectionName
from syncline.errors import Refused
from syncline.model import (
    PENDING,
    Connection,
    ConnectionOrder,
    ConnectionStatus,
    Job,
    JobStatus,
)
from syncline.policy.gates import TenantPause
from syncline.policy.schedule import MINIMUM_INTERVAL_SECONDS, sync_of
from syncline.policy.shares import TenantLimits
from syncline.policy.stats import SignalsOfJobs
from syncline.text import ago, duration

router = APIRouter(include_in_schema=False, route_class=PageRoute)
ROWS = 50
RUNS_SHOWN = 40
SIGNALS_SHOWN = 12
ACTS_SHOWN = 10
Text = Annotated[str, Field(max_length=1100)]
STATUS_CHOICES = ("", *ConnectionStatus)
ORDERS = (
    (ConnectionOrder.ID, "Oldest first"),
    (ConnectionOrder.STALENESS, "Oldest last run first"),
    (ConnectionOrder.EXTERNAL_ID, "By external id"),
)


class ConnectionsQuery(BaseModel):
    """The filters of the list, as they appear in the address."""

    q: Text = ""
    tenant: Text = ""
    provider: Text = ""
    status: Text = ""
    order: Text = ""
    after: Annotated[str, Field(max_length=4096)] = ""


@router.get("/connections")
async def list_connections(
    request: Request,
    viewer: ViewingOperator,
    dashboard: CurrentDashboard,
    query: Annotated[ConnectionsQuery, Query()],
) -> Response:
    """Return the list of connections."""
    if named := await _named(dashboard.engine, query.q.strip()):
        return RedirectResponse(f"/connections/{named}", status_code=303)
    wanted = query.model_dump(exclude={"after"})
    found = await dashboard.engine.connections.list(
        tenant_id=query.tenant or None,
        provider_slug=query.provider or None,
        status=query.status or None,
        external_id_prefix=query.q.strip() or None,
        order=query.order or None,
        after=query.after or None,
        limit=ROWS,
    )
    return dashboard.render(
        "connections.html",
        request,
        title="Connections",
        viewer=viewer,
        wanted=wanted,
        lines=[_line(dashboard.engine, connection) for connection in found],
        next_page=_link(wanted, after=found.next_page) if found.next_page else None,
        is_first=not query.after,
        here=_link(wanted, after=query.after),
        first_page=_link(wanted),
        status_links=[(name, _link({**wanted, "status": name})) for name in STATUS_CHOICES],
        counts=(await dashboard.overview.get()).counts,
        tenants=await dashboard.tenants.get(),
        providers=await dashboard.known_providers(),
        orders=ORDERS,
        switch_pause=await _pause_of(dashboard.engine, query.tenant.strip()),
        now=await dashboard.engine.stats.now(),
        done=done_sentence(request),
        limits=await _limits(dashboard.engine, query.tenant.strip()),
    )


async def _limits(engine: Engine, tenant_id: str) -> TenantLimits | None:
    """Return what is set for a tenant, or that it asks for too much; None if neither is so."""
    found = await engine.shares.tenants(tenant_id) if tenant_id else []
    return found[0] if found else None


async def _pause_of(engine: Engine, tenant: str) -> TenantPause | None:
    """Return the pause of the tenant that the list shows, if it is paused."""
    found = await engine.gates.paused_tenants(tenant) if tenant else []
    return found[0] if found else None


@router.get("/connections/{connection_id}")
async def show_connection(
    request: Request, viewer: ViewingOperator, dashboard: CurrentDashboard, connection_id: UUID
) -> Response:
    """Return the page of one connection, with why it is or is not running."""
    engine = dashboard.engine
    connection = await engine.connections.get(connection_id)
    explanation = await engine.explain(connection_id)
    runs = await engine.jobs.list(connection_id=connection_id, limit=RUNS_SHOWN)
    counted = await engine.stats.signals_of(connection_id, runs)
    signals = await engine.signals.list(
        connection_id=connection_id, newest_first=True, limit=SIGNALS_SHOWN
    )
    now = await engine.stats.now()
    return dashboard.render(
        "connection.html",
        request,
        title=connection.external_id,
        viewer=viewer,
        line=_line(engine, connection),
        connection=connection,
        name=ConnectionName(connection.tenant_id, connection.provider_slug, connection.external_id),
        why=explanation,
        evidence=_read_evidence(explanation.evidence),
        sync=sync_of(connection.metadata),
        runs=[(job, counted.of(job.id, job.started_at)) for job in runs],
        troubles=[job for job in runs if job.error is not None][:5],
        timeline=_timeline(runs, counted, now),
        signals=signals,
        acts=await engine.audit.list(connection_id=connection_id, limit=ACTS_SHOWN),
        shortest=MINIMUM_INTERVAL_SECONDS,
        longest=engine.settings.scheduler.max_overridden_interval_seconds,
        is_pending=any(job.status in PENDING for job in runs),
        now=now,
        done=done_sentence(request),
    )


@dataclass(frozen=True, slots=True)
class Line:
    """A connection as the list shows it. Its metadata may hold anything."""

    connection: Connection
    interval_seconds: float
    is_own_interval: bool
    next_run_at: datetime | None


def _line(engine: Engine, connection: Connection) -> Line:
    sync = sync_of(connection.metadata)
    own = sync.get("interval_seconds")
    if isinstance(own, bool) or not isinstance(own, int) or own <= 0:
        own = None
    default = engine.settings.scheduler.rules.default_interval.total_seconds()
    next_run_at = _as_time(sync.get("next_run_at"))
    is_active = connection.status == ConnectionStatus.ACTIVE
    return Line(
        connection, float(own or default), own is not None, next_run_at if is_active else None
    )


def _timeline(runs: Sequence[Job], counted: SignalsOfJobs, now: datetime) -> Chart:
    """Return a column for each run that started, oldest first; its height is the duration."""
    begun = [job for job in reversed(runs) if job.started_at is not None]
    lengths = [_length_of(job, now) for job in begun]
    # The square root keeps short runs visible beside one that took a thousand times as long.
    return stack(
        [
            Entry(
                f"{ago(now, job.started_at)}: {job.status}, {duration(length)}, "
                f"{_count_text(counted.of(job.id, job.started_at))}"
                if job.started_at
                else "",
                {job.status: max(length.total_seconds(), 0.001) ** 0.5},
            )
            for job, length in zip(begun, lengths, strict=True)
        ],
        slots=RUNS_SHOWN,
    )


def _length_of(job: Job, now: datetime) -> timedelta:
    assert job.started_at is not None
    is_running = job.status == JobStatus.RUNNING
    end = job.finished_at or (now if is_running else job.updated_at)
    return end - job.started_at


def _count_text(signals: int | None) -> str:
    return "signals not counted" if signals is None else f"{signals:,} signals"


def _read_evidence(evidence: dict[str, Any]) -> dict[str, datetime | None]:
    names = ("next_slot_at", "last_finished_at", "last_succeeded_at")
    return {name: _as_time(evidence.get(name)) for name in names}


def _as_time(value: Any) -> datetime | None:
    with contextlib.suppress(ValueError, TypeError):
        found = datetime.fromisoformat(value)
        return found if found.tzinfo is not None else None
    return None


async def _named(engine: Engine, text: str) -> UUID | None:
    """Return the connection whose id, or whole name, a search is."""
    name = ConnectionName.parse(text)
    if name is not None:
        with contextlib.suppress(Refused):
            return await engine.names.id_of(name)
    return _as_uuid(text)


def _as_uuid(text: str) -> UUID | None:
    with contextlib.suppress(ValueError):
        return UUID(text) if len(text) == 36 else None
    return None


def _link(wanted: dict[str, str], **more: str | None) -> str:
    chosen = {name: value for name, value in {**wanted, **more}.items() if value}
    return f"/connections?{urlencode(chosen)}" if chosen else "/connections"
