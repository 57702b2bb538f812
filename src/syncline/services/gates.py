"""Switches: which providers and tenants may not start jobs, and why; pause and resume them."""

import builtins
from collections.abc import Mapping
from typing import Any

from syncline.policy.audit import Action, Entry
from syncline.policy.gates import Gate, TenantPause
from syncline.policy.ramp import BACKLOG
from syncline.services.base import BaseService
from syncline.services.validation import check_text
from syncline.store.pool import Transaction
from syncline.store.queue import gates, tenant_pauses
from syncline.text import rfc3339


class Gates(BaseService):
    async def list(self) -> list[Gate]:
        """Return the gates of all providers that are paused, closed or down."""
        return await self._pool.reading(gates.read)

    async def pause(self, provider_slug: str, *, because: str | None = None) -> None:
        """Start no job of this provider until it is resumed; running ones end as usual."""

        async def change(tx: Transaction) -> None:
            now = await self._clock.now(tx)
            before = _state(await gates.read_one(tx, provider_slug))
            await gates.pause(tx, provider_slug, because, now=now)
            after = _state(await gates.read_one(tx, provider_slug))
            if after != before:
                entry = _gate_entry(Action.PROVIDERS_PAUSE, provider_slug, before, after)
                await self._record(tx, entry, now=now)

        await self._change(change)

    async def resume(self, provider_slug: str) -> bool:
        """Let the provider be called again, whatever shut it; return whether anything had."""

        async def change(tx: Transaction) -> bool:
            now = await self._clock.now(tx)
            rate = await gates.read_usual_rate(tx, provider_slug)
            before = _state(await gates.read_one(tx, provider_slug))
            resumed = await gates.resume(tx, provider_slug, now=now, rate=rate)
            await self._wakeup.notify(tx)
            if resumed:
                entry = _gate_entry(Action.PROVIDERS_RESUME, provider_slug, before, {})
                await self._record(tx, entry, now=now)
            return resumed

        return await self._change(change)

    async def paused_tenants(self, tenant_id: str | None = None) -> builtins.list[TenantPause]:
        """Return the tenants that are paused, or one if it is."""
        return await self._pool.reading(lambda tx: tenant_pauses.read(tx, tenant_id))

    async def pause_tenant(
        self, tenant_id: str, *, because: str | None = None, by: str | None = None
    ) -> TenantPause:
        """Start no job of this tenant until it is resumed, of connections added later neither.

        Nothing is written to its connections, so each keeps its status and its queued job.
        """
        check_text("tenant_id", tenant_id, characters=255)
        if because is not None:
            check_text("reason", because)

        async def change(tx: Transaction) -> TenantPause:
            now = await self._clock.now(tx)
            was_paused = bool(await tenant_pauses.read(tx, tenant_id))
            await tenant_pauses.pause(tx, TenantPause(tenant_id, now, because, by))
            if not was_paused:
                await self._record(tx, _entry(Action.TENANTS_PAUSE, tenant_id, because), now=now)
            return (await tenant_pauses.read(tx, tenant_id))[0]

        return await self._change(change)

    async def resume_tenant(self, tenant_id: str) -> bool:
        """Let a tenant's jobs start again; return whether it was paused.

        The next tick plans one run of each connection that is due. Providers that get a backlog
        of more than a minute of their usual starts begin slowly.
        """

        async def change(tx: Transaction) -> bool:
            resumed = await tenant_pauses.resume(tx, tenant_id)
            if resumed:
                now = await self._clock.now(tx)
                await self._record(tx, _entry(Action.TENANTS_RESUME, tenant_id), now=now)
                await self._begin_ramps(tx, tenant_id)
                await self._wakeup.notify(tx)
            return resumed

        return await self._change(change)

    async def _begin_ramps(self, tx: Transaction, tenant_id: str) -> None:
        now = await self._clock.now(tx)
        for slug in await tenant_pauses.providers_of(tx, tenant_id):
            rate = await gates.read_usual_rate(tx, slug)
            if rate is None:
                continue
            if await gates.has_backlog(tx, slug, int(rate * BACKLOG.total_seconds()) + 1, now=now):
                await gates.begin_ramp(tx, slug, rate, now=now)


def _entry(action: Action, tenant_id: str, because: str | None = None) -> Entry:
    after = None if because is None else {"reason": because}
    return Entry(action, tenant_id=tenant_id, subject=tenant_id, after=after)


def _gate_entry(
    action: Action, provider_slug: str, before: Mapping[str, Any], after: Mapping[str, Any]
) -> Entry:
    return Entry(action, None, provider_slug, provider_slug, before=before, after=after)


def _state(gate: Gate | None) -> dict[str, Any]:
    """Return what shuts a gate, for the audit."""
    if gate is None:
        return {}
    state = _paused(gate.paused_because) if gate.paused_at is not None else {}
    state |= {"down_because": gate.opened_because} if gate.opened_at is not None else {}
    closed = gate.closed_until
    return state | ({} if closed is None else {"limited_until": rfc3339(closed)})


def _paused(because: str | None) -> dict[str, Any]:
    return {"paused": True} | ({} if because is None else {"because": because})
