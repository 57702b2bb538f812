"""Pause and resume: one connection by its status, a tenant or a provider by a switch."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TypedDict, Unpack

from syncline.errors import Conflict, Invalid
from syncline.model import Connection, ConnectionStatus
from syncline.policy import status
from syncline.services.gates import Gates
from syncline.services.validation import check_text
from syncline.store.data import connections
from syncline.store.pool import Transaction
from syncline.store.queue import jobs
from syncline.text import rfc3339

Write = Callable[[Transaction, Connection, datetime], Awaitable[None]]


class PauseOptions(TypedDict, total=False):
    """What a pause may say: why and by whom, whose connection, and which version was read."""

    reason: str | None
    by: str | None
    tenant_id: str | None
    expected: str | None


def pausing(reason: str | None, by: str | None) -> Write:
    """Return what pauses a locked connection and cancels its queued jobs."""
    if reason is not None:
        check_text("reason", reason)

    async def write(tx: Transaction, present: Connection, now: datetime) -> None:
        if present.status == ConnectionStatus.REVOKED:
            raise Conflict(present.id, reason="is revoked and cannot be paused")
        why, since = reason or "paused", rfc3339(now)
        paused = status.pause(status.stored_status(present), why=why, since=since, by=by)
        await connections.set_statuses(tx, {present.id: paused}, now=now)
        await jobs.cancel_queued(tx, [present.id], now=now)

    return write


async def write_resumed(tx: Transaction, present: Connection, now: datetime) -> None:
    """Resume a locked connection."""
    if present.status == ConnectionStatus.REVOKED:
        raise Conflict(present.id, reason="is revoked and cannot be resumed")
    if present.status != ConnectionStatus.ACTIVE:
        resumed = {present.id: status.resume(status.stored_status(present))}
        await connections.set_statuses(tx, resumed, now=now)


async def switch_off(
    gates: Gates, provider_slug: str | None, **options: Unpack[PauseOptions]
) -> None:
    """Pause a whole tenant or provider."""
    if options.get("expected") is not None:
        raise Invalid("expected", "goes with a connection")
    reason = options.get("reason")
    if (tenant := _only_tenant(options.get("tenant_id"), provider_slug)) is not None:
        await gates.pause_tenant(tenant, because=reason, by=options.get("by"))
    elif provider_slug is not None:
        await gates.pause(provider_slug, because=reason)


async def switch_on(gates: Gates, tenant_id: str | None, provider_slug: str | None) -> None:
    """End the pause of a whole tenant or provider."""
    if (tenant := _only_tenant(tenant_id, provider_slug)) is not None:
        await gates.resume_tenant(tenant)
    elif provider_slug is not None:
        await gates.resume(provider_slug)


def _only_tenant(tenant_id: str | None, provider_slug: str | None) -> str | None:
    """Return the tenant of a switch, or None if it is a provider's; refuse both, and neither."""
    if (tenant_id is None) == (provider_slug is None):
        raise Invalid("tenant_id", "name one of a connection, tenant_id and provider_slug")
    return tenant_id
