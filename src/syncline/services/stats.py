"""How is everything? Counts, queues, providers, freshness, troubles and activity.

The API, the dashboard and the command line all read this service. With a tenant id, an answer
covers that tenant's rows; without one, everything.
"""

import builtins
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from syncline.engine.upkeep.heartbeat import DEAD_AFTER
from syncline.errors import Invalid
from syncline.model import Job, Worker, WorkerStatus
from syncline.policy.budgets import BudgetUse, by_provider, describe_uses, in_force
from syncline.policy.figures import PERIODS, Span, chart, start_of
from syncline.policy.freshness import Freshness, judge_freshness
from syncline.policy.gates import Gate
from syncline.policy.health import ProviderCounts, Recent, judge_health, judge_recent
from syncline.policy.shares import Flood
from syncline.policy.stats import (
    Activity,
    Affected,
    History,
    Overview,
    Providers,
    ProviderStats,
    QueueStats,
    SignalsOfJobs,
    TenantLine,
    Trouble,
    failures_by_class,
)
from syncline.services.base import BaseService
from syncline.services.pagination import Listing, check_limit, cut_page, read_token, write_token
from syncline.services.validation import check_filters
from syncline.store.data import workers
from syncline.store.listings import details
from syncline.store.listings.details import Lease
from syncline.store.pool import Transaction
from syncline.store.queue import budgets, caps, gates
from syncline.store.stats import (
    activity,
    counts,
    figures,
    freshness,
    providers,
    queue,
    tenants,
    troubles,
)

HOUR, DAY = timedelta(hours=1), timedelta(hours=24)
FAILED_WITHIN = timedelta(hours=1)
ALL_TIME = timedelta(days=36_500)
TENANTS_OFFERED = 200
LEASES_SHOWN = 100
NO_ID = UUID(int=0)  # tenants have none


class Stats(BaseService):
    async def overview(self, *, tenant_id: str | None = None, limit: int = 8) -> Overview:
        """Return counts, queues, outcomes, workers, and up to `limit` troubles of each sort."""

        async def read(tx: Transaction) -> Overview:
            return await self._read_overview(tx, tenant_id, limit)

        return await self._pool.reading(read)

    async def providers(
        self, *, tenant_id: str | None = None, overview: Overview | None = None
    ) -> Providers:
        """Return the providers in use and their health.

        An operator also sees the providers that live workers have connectors for. An `overview`
        that was read a moment ago, of the same tenant, is not read again.
        """

        async def read(tx: Transaction) -> Providers:
            seen = overview or await self._read_overview(tx, tenant_id, 0)
            total = seen.counts.connections
            connections = await providers.count_connections(tx, tenant_id, total=total)
            slugs = {*connections.by_provider, *seen.queues, *seen.outcomes, *seen.failed}
            if tenant_id is None:
                slugs |= {slug for worker in seen.alive for slug in worker.providers}
            shut = {gate.provider_slug: gate for gate in await gates.read(tx)}
            capped = await caps.read_uses(tx) if tenant_id is None else []
            uses = await _read_uses(tx, seen.now) if tenant_id is None else {}
            items = [
                _provider_stats(slug, seen, connections.by_provider.get(slug, {}), shut.get(slug))
                for slug in sorted(slugs)
            ]
            unwell = [one.provider_slug for one in items if one.is_unwell]
            nobody = Affected(0, 0)
            affected = await providers.count_affected(tx, tenant_id, unwell, now=seen.now)
            items = [
                replace(
                    one,
                    affected=affected.get(slug, nobody if one.is_unwell else None),
                    budgets=uses.get(slug, ()),
                    caps=[use for use in capped if use.cap.provider_slug == slug],
                )
                for one in items
                for slug in (one.provider_slug,)
            ]
            floods = await _read_floods(tx, seen.now) if tenant_id is None else []
            return Providers(seen.now, items, connections.kind, floods)

        return await self._pool.reading(read)

    async def list_tenants(
        self, *, after: str | None = None, limit: int = 100
    ) -> Listing[TenantLine]:
        """Return a page of tenants by name, each with its connections by status."""
        check_limit(limit)
        place = read_token(after, "tenants", str)

        async def read(tx: Transaction) -> builtins.list[TenantLine]:
            return await tenants.read_page(tx, after=place[0] if place else "", limit=limit + 1)

        found = await self._pool.reading(read)
        return cut_page(found, limit, lambda last: write_token("tenants", last.tenant_id, NO_ID))

    async def tenants_without_connections(self, tenant_ids: Collection[str]) -> set[str]:
        """Return those tenants that have no connection, so that `list_tenants` leaves them out."""

        async def read(tx: Transaction) -> set[str]:
            return await tenants.read_without_connections(tx, tenant_ids)

        return await self._pool.reading(read) if tenant_ids else set()

    async def troubles_at(self, provider_slug: str, *, limit: int = 8) -> builtins.list[Trouble]:
        """Return a provider's connections that wait for a person, then those that keep failing."""
        check_filters(provider_slug=provider_slug)

        async def read(tx: Transaction) -> builtins.list[Trouble]:
            return await troubles.list_at_provider(tx, provider_slug, limit=limit)

        return await self._pool.reading(read)

    async def freshness(self, *, tenant_id: str | None = None) -> Freshness:
        """Return active connections by the age of their last good sync."""

        async def read(tx: Transaction) -> Freshness:
            now = await self._clock.now(tx)
            if tenant_id is None:
                total = await counts.count_connections(tx)
                sample = await freshness.sample(tx, connections=total.count)
            else:
                total = (await counts.read_counts(tx, tenant_id)).connections
                sample = await freshness.sample_of_tenant(tx, tenant_id, connections=total.count)
            return judge_freshness(sample, now)

        return await self._pool.reading(read)

    async def activity(self, *, limit: int = 10) -> Activity:
        """Return what happens now, with up to `limit` lines of each list."""

        async def read(tx: Transaction) -> Activity:
            return await activity.read_activity(tx, now=await self._clock.now(tx), limit=limit)

        return await self._pool.reading(read)

    async def history(self, period: str = "1h", *, provider_slug: str | None = None) -> History:
        """Return what happened over a period: 1h, 24h, 7d or 90d."""
        chosen = PERIODS.get(period)
        if chosen is None:
            raise Invalid("period", f"must be one of {', '.join(PERIODS)}")

        async def read(tx: Transaction) -> History:
            now = await self._clock.now(tx)
            since = start_of(chosen.span, now - chosen.length)
            found = await figures.read(tx, chosen.span, since=since, provider_slug=provider_slug)
            return History(now, period, chart(found, chosen, now))

        return await self._pool.reading(read)

    async def now(self) -> datetime:
        """Return the engine's time, by which ages are measured."""

        async def read(tx: Transaction) -> datetime:
            return await self._clock.now(tx)

        return await self._pool.reading(read)

    async def names(self, ids: Iterable[UUID]) -> dict[UUID, str]:
        """Return the external ids of connections."""

        async def read(tx: Transaction) -> dict[UUID, str]:
            return await details.read_names(tx, ids)

        return await self._pool.reading(read)

    async def tenants(self) -> builtins.list[str]:
        """Return the first tenants by name, to choose from."""

        async def read(tx: Transaction) -> builtins.list[str]:
            return await details.list_tenants(tx, limit=TENANTS_OFFERED)

        return await self._pool.reading(read)

    async def leases(self) -> builtins.list[Lease]:
        """Return the running jobs, the first lease to expire first."""

        async def read(tx: Transaction) -> builtins.list[Lease]:
            return await details.list_leases(tx, limit=LEASES_SHOWN)

        return await self._pool.reading(read)

    async def signals_of(self, connection_id: UUID, shown: Sequence[Job]) -> SignalsOfJobs:
        """Return how many signals each of a connection's jobs stored."""
        started = [job.started_at for job in shown if job.started_at is not None]
        if not started:
            return SignalsOfJobs({})

        async def read(tx: Transaction) -> SignalsOfJobs:
            return await details.count_signals_of_jobs(tx, connection_id, since=min(started))

        return await self._pool.reading(read)

    async def _read_overview(self, tx: Transaction, tenant_id: str | None, limit: int) -> Overview:
        now = await self._clock.now(tx)
        return Overview(
            now=now,
            counts=await counts.read_counts(tx, tenant_id),
            queues=await queue.read_queues(tx, tenant_id, now=now),
            recent=await self._read_recent(tx, tenant_id, now),
            failed=await providers.count_failed(tx, tenant_id, since=now - FAILED_WITHIN),
            troubles=await troubles.list_troubles(tx, tenant_id, limit=limit),
            workers=await workers.list_all(tx, silent_since=now - DEAD_AFTER),
        )

    async def _read_recent(
        self, tx: Transaction, tenant_id: str | None, now: datetime
    ) -> Mapping[str, Recent]:
        """Return the attempts that ended lately; of one tenant, those of its latest jobs."""
        if tenant_id is None:
            minutes = await figures.read(tx, Span.MINUTE, since=now - HOUR)
            hours = await figures.read(tx, Span.HOUR, since=start_of(Span.HOUR, now - DAY))
            return judge_recent(minutes, hours, now)
        kept = self._settings.retention.empty_jobs or ALL_TIME
        found = await providers.count_outcomes(tx, tenant_id, since=now - min(kept, DAY))
        return {slug: Recent(DAY, outcomes) for slug, outcomes in found.items()}


async def _read_uses(tx: Transaction, now: datetime) -> dict[str, tuple[BudgetUse, ...]]:
    """Return the budgets of each provider, and how much of them is used."""
    found, shared = await budgets.read(tx)
    own = by_provider(in_force(found))
    return {slug: describe_uses(ones, shared, now) for slug, ones in own.items()}


async def _read_floods(tx: Transaction, now: datetime) -> list[Flood]:
    """Return the tenants that ask for more than their share, those with most jobs due first."""
    found = [share.flood(now) for share in await caps.read_shares(tx)]
    return sorted((one for one in found if one is not None), key=lambda one: -one.due)


def _provider_stats(
    slug: str, seen: Overview, connections: Mapping[str, int], gate: Gate | None
) -> ProviderStats:
    waiting = seen.queues.get(slug) or QueueStats(slug)
    recent = seen.recent.get(slug) or Recent()
    able = count_workers(seen.workers, slug)
    counts = ProviderCounts(able, sum(connections.values()), waiting.rate_limited)
    health = judge_health(counts, recent, gate, seen.now)
    failures = failures_by_class(waiting, seen.failed.get(slug, {}))
    return ProviderStats(slug, health, able, connections, waiting, recent, failures, gate)


def count_workers(found: Iterable[Worker], slug: str) -> int:
    """Return how many live workers have a connector for the provider."""
    alive = [worker for worker in found if worker.status == WorkerStatus.ALIVE]
    return sum(slug in worker.providers for worker in alive)
