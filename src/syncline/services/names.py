"""Connections by the names that people know them by."""

from uuid import UUID

from syncline.connection_name import ConnectionName
from syncline.errors import NotFound
from syncline.services.base import BaseService
from syncline.services.validation import check_filters
from syncline.store.data import connections
from syncline.store.pool import Transaction


class Names(BaseService):
    async def id_of(self, name: ConnectionName, *, tenant_id: str | None = None) -> UUID:
        """Return the id of the connection with this name, or raise NotFound."""
        check_filters(
            tenant_id=name.tenant_id,
            provider_slug=name.provider_slug,
            external_id=name.external_id,
        )

        async def read(tx: Transaction) -> UUID | None:
            key = (name.tenant_id, name.provider_slug, name.external_id)
            return await connections.find(tx, key)

        is_foreign = tenant_id not in (None, name.tenant_id)
        found = None if is_foreign else await self._pool.reading(read)
        if found is None:
            raise NotFound("connection", name)
        return found
