"""Weights of tenants, and how many jobs may run at once."""

from syncline.errors import Invalid
from syncline.policy.audit import Action, Entry
from syncline.policy.caps import EVERY, CapUse
from syncline.policy.shares import TenantLimits, TenantShare
from syncline.services.base import BaseService
from syncline.services.validation import check_text
from syncline.store.pool import Transaction
from syncline.store.queue import caps, tenant_pauses

LEAST_WEIGHT, LARGEST_WEIGHT = 0.01, 1000
LARGEST_CAP = 1_000_000


class Shares(BaseService):
    async def tenants(self, tenant_id: str | None = None) -> list[TenantLimits]:
        """Return tenants with a weight, a cap or a pause, and those that ask for too much."""

        async def read(tx: Transaction) -> list[TenantLimits]:
            now = await self._clock.now(tx)
            shares = {share.tenant_id: share for share in await caps.read_shares(tx, tenant_id)}
            uses = await caps.read_uses(tx, tenant_id=tenant_id)
            uses = [use for use in uses if use.cap.tenant_id != EVERY]
            pauses = {pause.tenant_id: pause for pause in await tenant_pauses.read(tx, tenant_id)}
            of_tenant = {
                tenant: tuple(use for use in uses if use.cap.tenant_id == tenant)
                for tenant in sorted({*shares, *pauses, *(use.cap.tenant_id for use in uses)})
            }
            found = [
                TenantLimits(tenant, share.weight, share.flood(now), own, pauses.get(tenant))
                for tenant, own in of_tenant.items()
                for share in [shares.get(tenant) or TenantShare(tenant)]
            ]
            return [one for one in found if one.weight != 1 or one.flood or one.caps or one.pause]

        return await self._pool.reading(read)

    async def caps(
        self, *, tenant_id: str | None = None, provider_slug: str | None = None
    ) -> list[CapUse]:
        """Return all caps, or those that cover a tenant or a provider, with what runs."""

        async def read(tx: Transaction) -> list[CapUse]:
            return await caps.read_uses(tx, tenant_id=tenant_id, provider_slug=provider_slug)

        return await self._pool.reading(read)

    async def set_weight(self, tenant_id: str, weight: float) -> None:
        """Give a tenant so many times the share of others; 1 is the usual weight."""
        check_text("tenant_id", tenant_id, characters=255)
        if not LEAST_WEIGHT <= weight <= LARGEST_WEIGHT:
            raise Invalid("weight", f"is {weight}; it is {LEAST_WEIGHT} to {LARGEST_WEIGHT}")

        async def change(tx: Transaction) -> None:
            now = await self._clock.now(tx)
            before = [share.weight for share in await caps.read_shares(tx, tenant_id)] or [1.0]
            await caps.set_weight(tx, tenant_id, weight)
            await caps.forget_heavy(tx, now=now)
            if before != [weight]:
                entry = Entry(
                    Action.TENANTS_WEIGH,
                    tenant_id,
                    subject=tenant_id,
                    before={"weight": before[0]},
                    after={"weight": weight},
                )
                await self._record(tx, entry, now=now)

        await self._change(change)

    async def set_cap(
        self,
        max_running: int | None,
        *,
        tenant_id: str | None = None,
        provider_slug: str | None = None,
    ) -> None:
        """Let at most so many jobs of a tenant, a provider or both run at once; None ends that.

        What runs already goes on; nothing more starts until there is room.
        """
        if tenant_id is None and provider_slug is None:
            raise Invalid("tenant_id", "is missing, and so is provider_slug; name one of them")
        if tenant_id is not None:
            check_text("tenant_id", tenant_id, characters=255)
        if provider_slug is not None:
            check_text("provider_slug", provider_slug, characters=100)
        if max_running is not None and not 0 <= max_running <= LARGEST_CAP:
            raise Invalid("max_running", f"is {max_running}; it is 0 to {LARGEST_CAP}")

        async def change(tx: Transaction) -> None:
            whose, now = (tenant_id or EVERY, provider_slug or EVERY), await self._clock.now(tx)
            before = {cap.key: cap.max_running for cap in (await caps.read(tx))[0]}.get(whose)
            if max_running is None:
                await caps.clear(tx, *whose)
            else:
                await caps.set_cap(tx, *whose, max_running, now=now)
            await self._wakeup.notify(tx)
            if before != max_running:
                await self._record(
                    tx, _entry(tenant_id, provider_slug, before, max_running), now=now
                )

        await self._change(change)


def _entry(
    tenant_id: str | None, provider_slug: str | None, before: int | None, after: int | None
) -> Entry:
    """Return what the audit says of a cap that was changed."""
    return Entry(
        Action.CAPS_CLEAR if after is None else Action.CAPS_SET,
        tenant_id,
        provider_slug,
        " at ".join(name for name in (tenant_id, provider_slug) if name),
        before=None if before is None else {"max_running": before},
        after=None if after is None else {"max_running": after},
    )
