"""What people do with a whole tenant: count what it has, hand it over, remove it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from uuid import UUID

from syncline.engine.upkeep.connector_files import ConnectorFiles
from syncline.model import TenantSize
from syncline.services.base import BaseService, ServiceContext
from syncline.services.validation import check_text
from syncline.store.data import connections, keys, tenant_usage, tenants
from syncline.store.data.tenants import FIRST_PLACE, Line
from syncline.store.pool import Transaction

A_BATCH = 1000
BEGINNING = UUID(int=0)
NextLines = Callable[[Transaction, UUID, int], Awaitable[list[Line]]]


class Tenants(BaseService):
    def __init__(self, context: ServiceContext, files: ConnectorFiles) -> None:
        super().__init__(context)
        self._files = files

    async def count(self, tenant_id: str) -> TenantSize:
        """Return how many connections, jobs, signals and keys the tenant has."""
        check_text("tenant_id", tenant_id, characters=255)

        async def read(tx: Transaction) -> TenantSize:
            return await tenants.count(tx, tenant_id)

        return await self._pool.retrying(read)

    async def stored_bytes(self, tenant_id: str) -> int:
        """Return what the tenant stored when it was last measured; 0 where that is not done."""

        async def read(tx: Transaction) -> int:
            return await tenant_usage.read_stored_bytes(tx, tenant_id)

        return await self._pool.retrying(read)

    async def export(self, tenant_id: str) -> AsyncIterator[tuple[str, str]]:
        """Return every row of a tenant as JSON, with the table that it is of.

        No transaction stays open between two batches, so an export harms nobody however long it
        takes; what was stored before it began, and not removed since, is in it.
        """
        check_text("tenant_id", tenant_id, characters=255)
        async for connection in self._walk(_of(tenants.connections, tenant_id)):
            yield "connections", connection.json
            async for job in self._walk(_of(tenants.jobs, connection.id)):
                yield "sync_jobs", job.json
        place = FIRST_PLACE
        while True:
            lines, place = await self._pool.retrying(
                partial(tenants.signals, tenant_id=tenant_id, after=place, limit=A_BATCH)
            )
            for line in lines:
                yield "signals", line.json
            if len(lines) < A_BATCH:
                return

    async def delete(
        self, tenant_id: str, *, on_progress: Callable[[int], None] = lambda _: None
    ) -> int:
        """Revoke a tenant's keys and remove its rows; return how many keys were revoked.

        Rows go in batches; cut short, it can be called again. A run in progress settles nothing
        once its connection is gone.
        """
        check_text("tenant_id", tenant_id, characters=255)

        async def revoke(tx: Transaction) -> int:
            return await keys.revoke_of_tenant(tx, tenant_id, now=await self._clock.now(tx))

        # First, so that nobody adds to what is being removed.
        revoked = await self._pool.retrying(revoke)
        async for connection in self._walk(_of(tenants.connections, tenant_id)):
            await self._delete_connection(connection.id, on_progress)

        async def remove_signals(tx: Transaction) -> int:
            return await tenants.delete_signals(tx, tenant_id, limit=A_BATCH)

        while removed := await self._pool.retrying(remove_signals):
            on_progress(removed)
        await self._pool.retrying(lambda tx: tenant_usage.delete(tx, tenant_id))
        return revoked

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
        await self._files.forget(id_)

    async def _walk(self, next_lines: NextLines) -> AsyncIterator[Line]:
        """Return rows in the order of their ids, a transaction a batch."""
        after = BEGINNING
        while lines := await self._pool.retrying(
            partial(_read, next_lines=next_lines, after=after)
        ):
            for line in lines:
                yield line
            after = lines[-1].id


def _of(read: Callable[..., Awaitable[list[Line]]], whose: str | UUID) -> NextLines:
    return lambda tx, after, limit: read(tx, whose, after, limit)


async def _read(tx: Transaction, *, next_lines: NextLines, after: UUID) -> list[Line]:
    return await next_lines(tx, after, A_BATCH)
