"""What people do with a whole tenant: count its rows, export them, delete them."""

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from uuid import UUID

from syncline.engine.upkeep.connector_files import ConnectorFiles
from syncline.model import TenantSize
from syncline.policy.audit import Action, Entry
from syncline.services.base import BaseService, ServiceContext
from syncline.services.validation import check_text
from syncline.store.data import connections, keys, tenants
from syncline.store.data.tenants import FIRST_PLACE, Line
from syncline.store.pool import Transaction
from syncline.store.queue import caps

BATCH_SIZE = 1000
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
        """Return the bytes stored at the last measurement; 0 if none was made."""

        async def read(tx: Transaction) -> int:
            return await tenants.read_stored_bytes(tx, tenant_id)

        return await self._pool.retrying(read)

    async def export(self, tenant_id: str) -> AsyncIterator[tuple[str, str]]:
        """Yield the table and the JSON of every row of a tenant.

        It holds everything that was stored before it began and not deleted since. No transaction
        stays open between two batches, so a long export does no harm.
        """
        check_text("tenant_id", tenant_id, characters=255)
        async for connection in self._walk(_of(tenants.connections, tenant_id)):
            yield "connections", connection.json
            async for job in self._walk(_of(tenants.jobs, connection.id)):
                yield "sync_jobs", job.json
        place = FIRST_PLACE
        while True:
            lines, place = await self._pool.retrying(
                partial(tenants.signals, tenant_id=tenant_id, after=place, limit=BATCH_SIZE)
            )
            for line in lines:
                yield "signals", line.json
            if len(lines) < BATCH_SIZE:
                return

    async def delete(
        self, tenant_id: str, *, on_progress: Callable[[int], None] = lambda _: None
    ) -> int:
        """Revoke a tenant's keys and delete its rows; return how many keys were revoked.

        Rows are deleted in batches. If it is interrupted, call it again. A run in progress stores
        nothing once its connection is deleted.
        """
        check_text("tenant_id", tenant_id, characters=255)

        async def revoke(tx: Transaction) -> int:
            now = await self._clock.now(tx)
            revoked = await keys.revoke_of_tenant(tx, tenant_id, now=now)
            after = {"keys_revoked": revoked}
            entry = Entry(Action.TENANTS_DELETE, tenant_id, subject=tenant_id, after=after)
            await self._record(tx, entry, now=now)
            return revoked

        # First, so that the tenant adds no rows meanwhile.
        revoked = await self._pool.retrying(revoke)
        async for connection in self._walk(_of(tenants.connections, tenant_id)):
            await self._delete_connection(connection.id, on_progress)

        async def remove_signals(tx: Transaction) -> int:
            return await tenants.delete_signals(tx, tenant_id, limit=BATCH_SIZE)

        while removed := await self._pool.retrying(remove_signals):
            on_progress(removed)
        await self._pool.retrying(lambda tx: tenants.delete_usage(tx, tenant_id))
        await self._pool.retrying(lambda tx: caps.forget_tenant(tx, tenant_id))
        return revoked

    async def _delete_connection(self, id_: UUID, on_progress: Callable[[int], None]) -> None:
        """Delete the jobs first, in batches: one long history would hold its locks for long."""

        async def remove_jobs(tx: Transaction) -> int:
            return await tenants.delete_jobs(tx, id_, limit=BATCH_SIZE)

        async def remove(tx: Transaction) -> int:
            await connections.lock(tx, [id_])
            return int(await connections.delete(tx, id_))

        while (removed := await self._pool.retrying(remove_jobs)) == BATCH_SIZE:
            on_progress(removed)
        on_progress(removed + await self._pool.retrying(remove))
        await self._files.forget(id_)

    async def _walk(self, next_lines: NextLines) -> AsyncIterator[Line]:
        """Yield rows in the order of their ids, one transaction per batch."""
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
    return await next_lines(tx, after, BATCH_SIZE)
