"""What people do with a whole tenant: count what it has, hand it over, remove it."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any
from uuid import UUID

from syncline.engine.desk import Desk, check_text
from syncline.store import connections, tenants
from syncline.store.pool import Transaction
from syncline.store.tenants import TenantSize

A_BATCH = 1000
BEGINNING = UUID(int=0)


class Tenants(Desk):
    async def count(self, tenant_id: str) -> TenantSize:
        """Return how many connections, jobs and signals the tenant has."""
        check_text("tenant_id", tenant_id, characters=255)

        async def read(tx: Transaction) -> TenantSize:
            return await tenants.count(tx, tenant_id)

        return await self._pool.retrying(read)

    async def connections(self, tenant_id: str) -> AsyncIterator[Any]:
        """Return the rows of the tenant's connections, some at a time; JSON still as text."""

        async def next_batch(tx: Transaction, after: UUID) -> Sequence[Any]:
            return await tenants.next_connections(tx, tenant_id, after=after, limit=A_BATCH)

        async for row in self._walk(next_batch):
            yield row

    async def jobs(self, connection_id: UUID) -> AsyncIterator[Any]:
        """Return the rows of a connection's jobs, some at a time; JSON still as text."""

        async def next_batch(tx: Transaction, after: UUID) -> Sequence[Any]:
            return await tenants.next_jobs(tx, connection_id, after=after, limit=A_BATCH)

        async for row in self._walk(next_batch):
            yield row

    async def delete(
        self, tenant_id: str, *, on_progress: Callable[[int], None] = lambda _: None
    ) -> None:
        """Remove everything of a tenant, in batches; cut short, it can be called again.

        A run in progress settles nothing once its connection is gone.
        """
        check_text("tenant_id", tenant_id, characters=255)
        async for row in self.connections(tenant_id):
            await self._delete_connection(row["id"], on_progress)

        async def remove_signals(tx: Transaction) -> int:
            return await tenants.delete_signals(tx, tenant_id, limit=A_BATCH)

        while removed := await self._pool.retrying(remove_signals):
            on_progress(removed)

    async def _delete_connection(self, id_: UUID, on_progress: Callable[[int], None]) -> None:
        """Remove the jobs first, in batches: a long history would hold its locks for long."""

        async def remove_jobs(tx: Transaction) -> int:
            return await tenants.delete_jobs(tx, id_, limit=A_BATCH)

        async def remove(tx: Transaction) -> int:
            await connections.lock(tx, [id_])
            return int(await connections.delete(tx, id_))

        while (removed := await self._pool.retrying(remove_jobs)) == A_BATCH:
            on_progress(removed)
        on_progress(removed + await self._pool.retrying(remove))

    async def _walk(
        self, next_batch: Callable[[Transaction, UUID], Any]
    ) -> AsyncIterator[Any]:
        """Return rows in the order of their ids; no transaction stays open between two batches."""
        after = BEGINNING

        async def read(tx: Transaction) -> Sequence[Any]:
            found: Sequence[Any] = await next_batch(tx, after)
            return found

        while rows := await self._pool.retrying(read):
            for row in rows:
                yield row
            after = rows[-1]["id"]
