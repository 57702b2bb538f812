"""Why a connection is, or is not, running: read the evidence, then decide."""

from dataclasses import replace
from datetime import datetime
from uuid import UUID

from syncline.engine.upkeep.heartbeat import DEAD_AFTER
from syncline.errors import NotFound
from syncline.policy.budgets import Shortage, by_provider, find_shortage, in_force
from syncline.policy.evidence import Evidence, Explanation
from syncline.policy.explain import explain
from syncline.policy.schedule import Candidate, next_slot_at, read_sync
from syncline.services.base import BaseService
from syncline.store.checks import explain as evidence
from syncline.store.data import workers
from syncline.store.pool import Transaction
from syncline.store.queue import budgets, caps, gates, tenant_pauses


class Explanations(BaseService):
    async def explain(self, connection_id: UUID, *, tenant_id: str | None = None) -> Explanation:
        """Return why the connection is, or is not, running now."""

        async def read(tx: Transaction) -> Evidence:
            return await self._gather(tx, connection_id, tenant_id)

        found = await self._pool.reading(read)

        async def read_shares(tx: Transaction) -> Evidence:
            return await _with_shares(tx, found)

        # All that runs counts in a cap, whoever asks; none of it is shown.
        return explain(await self._pool.own.reading(read_shares))

    async def _gather(
        self, tx: Transaction, connection_id: UUID, tenant_id: str | None
    ) -> Evidence:
        settings = self._settings
        now = await self._clock.now(tx)
        seen = await evidence.observe(tx, connection_id, tenant_id, now=now)
        if seen is None:
            raise NotFound("connection", connection_id)
        options = read_sync(seen.candidate.stored, settings.scheduler.rules)
        last = seen.candidate.last_finished_at
        return Evidence(
            now=now,
            connection_id=connection_id,
            tenant_id=seen.candidate.tenant_id,
            provider_slug=seen.candidate.provider_slug,
            status=seen.status,
            status_reason=seen.status_reason,
            interval=options.interval,
            complaints=tuple(f"{one.key} {one.reason}" for one in options.complaints),
            last_finished_at=last,
            last_succeeded_at=seen.last_succeeded_at,
            next_slot_at=next_slot_at(seen.candidate, options, now),
            pending=seen.pending,
            stopping=seen.stopping,
            last_ended=seen.last_ended,
            workers=tuple(await workers.list_all(tx, silent_since=now - DEAD_AFTER)),
            last_tick_at=seen.last_tick_at,
            tick_interval=settings.scheduler.tick_interval,
            lookahead=settings.scheduler.lookahead,
            flight_by_type=settings.executor.single_flight == "job_type",
            gate=await gates.read_one(tx, seen.candidate.provider_slug),
            shortage=await _find_shortage(tx, seen.candidate, now),
        )


async def _with_shares(tx: Transaction, evidence: Evidence) -> Evidence:
    """Add the caps that are full, and the tenant's share if it asks for more."""
    tenant, provider = evidence.tenant_id, evidence.provider_slug
    uses = await caps.read_uses(tx, tenant_id=tenant, provider_slug=provider)
    shares = await caps.read_shares(tx, tenant)
    return replace(
        evidence,
        tenant_pause=next(iter(await tenant_pauses.read(tx, tenant)), None),
        full_caps=tuple(use.cap for use in uses if use.is_full),
        share=next((share for share in shares if share.flood(evidence.now)), None),
    )


async def _find_shortage(tx: Transaction, candidate: Candidate, now: datetime) -> Shortage | None:
    """Return the budget that has no room for the connection's calls, if there is one."""
    found, _ = await budgets.read(tx)
    own = by_provider(in_force(found)).get(candidate.provider_slug, ())
    if not own:
        return None
    tenant, id_ = candidate.tenant_id, candidate.connection_id
    members = [(one.scope, one.member(tenant, id_)) for one in own]
    return find_shortage(own, await budgets.read_buckets(tx, members), now)
