"""Which providers tenants' keys may connect, by settings, connectors and workers."""

import asyncio
from collections.abc import Iterable, Mapping

from syncline.engine.upkeep.heartbeat import DEAD_AFTER
from syncline.policy.tenant_providers import ProviderFacts, why_refused
from syncline.sdk.connector import Connector
from syncline.sdk.registry import why_not_for_tenants
from syncline.services.base import BaseService, ServiceContext
from syncline.store.data import workers
from syncline.store.pool import Transaction


class TenantProviders(BaseService):
    def __init__(
        self,
        context: ServiceContext,
        providers: Mapping[str, Connector],
    ) -> None:
        super().__init__(context)
        self._providers = providers
        self._reasons: dict[str, str | None] = {}

    async def refusals(self, providers: Iterable[str]) -> dict[str, str]:
        """Return which of these providers tenants' keys may not connect, and why.

        This process knows from its own connectors whether a provider is local. Whether a connector
        can be confined depends on the host, so every live worker reports that for its own.
        """
        wanted = sorted(set(providers))
        known = {slug: self._providers[slug] for slug in wanted if slug in self._providers}
        own = await self._unconfined(known)
        elsewhere = await self._pool.retrying(self._refused_by_workers)
        found = {}
        for slug in wanted:
            facts = ProviderFacts(
                is_known=slug in known,
                is_local=bool(getattr(known.get(slug), "local", False)),
                cannot_confine=own.get(slug)
                or ("a worker cannot confine it" if slug in elsewhere else None),
            )
            reason = why_refused(slug, facts, self._settings.api.tenant_providers)
            if reason is not None:
                found[slug] = reason
        return found

    async def _unconfined(self, connectors: Mapping[str, Connector]) -> Mapping[str, str | None]:
        """Ask each connector once: it may have to start a program to answer."""
        new = {slug: one for slug, one in connectors.items() if slug not in self._reasons}
        if new:
            found = await asyncio.to_thread(why_not_for_tenants, new)
            self._reasons |= {slug: found.get(slug) for slug in new}
        return self._reasons

    async def _refused_by_workers(self, tx: Transaction) -> set[str]:
        silent_since = await self._clock.now(tx) - DEAD_AFTER
        return await workers.not_for_tenants(tx, silent_since=silent_since)
