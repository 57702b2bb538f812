"""The storage limit of tenants: measured during retention, never during a run."""

import json
from collections import Counter
from uuid import UUID

from syncline.clock import Clock
from syncline.model import ConnectionStatus
from syncline.store.data import connections, tenants
from syncline.store.pool import Pool, Transaction
from syncline.store.queue import jobs
from syncline.telemetry.upkeep import UpkeepTelemetry
from syncline.text import rfc3339

SIGNALS_A_BATCH = 5000
CONNECTIONS_A_BATCH = 500
BYTES_BESIDE_PAYLOAD = 300  # the other columns of a signal, and its entries in the indexes
BEGINNING = UUID(int=0)


class StorageWalk:
    """Adds up what each tenant stores, then pauses the connections of tenants above the limit."""

    def __init__(self, pool: Pool, clock: Clock, limit: int, telemetry: UpkeepTelemetry) -> None:
        self._pool = pool
        self._clock = clock
        self._limit = limit
        self._telemetry = telemetry
        self._bytes: Counter[str] = Counter()
        self._after = BEGINNING
        self._above: dict[str, int] | None = None  # None until everything is measured

    async def batch(self) -> bool:
        """Do one batch of measuring or pausing; return whether there is more to do."""
        async with self._pool.transaction() as tx:
            if self._above is None:
                await self._measure(tx)
                return True
            return await self._pause(tx, self._above)

    async def _measure(self, tx: Transaction) -> None:
        batch = await tenants.measure_signals(
            tx,
            after=self._after,
            limit=SIGNALS_A_BATCH,
            bytes_beside_payload=BYTES_BESIDE_PAYLOAD,
        )
        if batch.last is not None:
            self._bytes.update(batch.bytes_by_tenant)
            self._after = batch.last
            return
        await tenants.save_usage(tx, self._bytes, now=await self._clock.now(tx))
        self._above = {tenant: size for tenant, size in self._bytes.items() if size > self._limit}
        self._after = BEGINNING

    async def _pause(self, tx: Transaction, above: dict[str, int]) -> bool:
        ids = await tenants.next_active(
            tx, sorted(above), after=self._after, limit=CONNECTIONS_A_BATCH
        )
        if not ids:
            return False
        now = await self._clock.now(tx)
        locked = [
            one
            for one in (await connections.lock(tx, ids)).values()
            if one.status == ConnectionStatus.ACTIVE
        ]
        changes = []
        for one in locked:
            why = too_much_stored(one.tenant_id, above[one.tenant_id], self._limit)
            reason = {"why": why, "since": rfc3339(now), "evidence": None, "by": "syncline"}
            changes.append((one.id, ConnectionStatus.PAUSED, json.dumps(reason)))
        if changes:
            await connections.set_status(tx, changes, now=now)
            await jobs.cancel_queued(tx, [one.id for one in locked], now=now)
        self._after = ids[-1]
        for tenant, count in Counter(one.tenant_id for one in locked).items():
            self._telemetry.tenant_paused(tenant, above[tenant], self._limit, count)
        return True


def too_much_stored(tenant_id: str, stored: int, limit: int) -> str:
    """Return the reason for the pause, for people."""
    return (
        f"tenant {tenant_id} stores {stored:,} bytes of signals; the limit is {limit:,} "
        "(api.max_stored_bytes_per_tenant)"
    )
