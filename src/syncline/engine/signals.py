"""What people do with signals: look."""

from uuid import UUID

from syncline.engine.desk import Desk
from syncline.model import StoredSignal
from syncline.store import views
from syncline.store.pool import Transaction


class Signals(Desk):
    async def list(
        self,
        *,
        tenant_id: str | None = None,
        connection_id: UUID | None = None,
        provider_slug: str | None = None,
        kind: str | None = None,
        after: UUID | None = None,
        limit: int = 100,
    ) -> list[StoredSignal]:
        """Return signals in the order of their ids, from the one after `after`."""

        async def read(tx: Transaction) -> list[StoredSignal]:
            return await views.list_signals(
                tx,
                tenant_id,
                connection_id=connection_id,
                provider_slug=provider_slug,
                kind=kind,
                after=after,
                limit=limit,
            )

        return await self._pool.retrying(read)
