"""Connections, looked at one by one or page by page."""

import builtins
from datetime import datetime
from typing import Any
from uuid import UUID

from syncline.errors import NotFound
from syncline.model import Connection, ConnectionFilter, ConnectionOrder, ConnectionStatus
from syncline.services.base import BaseService
from syncline.services.pagination import Listing, listing, read_token, token
from syncline.services.validation import check_choice, check_filters
from syncline.store.listings.connections import Place, find_place, read_page
from syncline.store.pool import Transaction

KEYS: dict[ConnectionOrder, type[Any] | None] = {
    ConnectionOrder.ID: None,
    ConnectionOrder.EXTERNAL_ID: str,
    ConnectionOrder.STALENESS: datetime,
}


class ConnectionListing(BaseService):
    async def list(
        self,
        *,
        tenant_id: str | None = None,
        provider_slug: str | None = None,
        status: str | None = None,
        external_id_prefix: str | None = None,
        order: str | None = None,
        after: UUID | None = None,
        limit: int = 100,
    ) -> builtins.list[Connection]:
        """Return connections from the one after `after`, as `page` would."""
        wanted = ConnectionFilter(tenant_id, provider_slug, status, external_id_prefix)
        chosen = _check_listing(wanted, order)

        async def read(tx: Transaction) -> builtins.list[Connection]:
            place = None
            if after is not None:
                place = await find_place(tx, after, tenant_id, chosen)
                if place is None:
                    raise NotFound("connection", after)
            found = await read_page(tx, wanted, chosen, after=place, limit=limit)
            return [connection for connection, _ in found]

        return await self._pool.reading(read)

    async def page(
        self,
        *,
        tenant_id: str | None = None,
        provider_slug: str | None = None,
        status: str | None = None,
        external_id_prefix: str | None = None,
        order: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> Listing[Connection]:
        """Return a page of connections in the order of their ids, external ids or staleness."""
        wanted = ConnectionFilter(tenant_id, provider_slug, status, external_id_prefix)
        chosen = _check_listing(wanted, order)
        place = read_token(after, chosen, KEYS[chosen])

        async def read(tx: Transaction) -> builtins.list[tuple[Connection, Place]]:
            return await read_page(tx, wanted, chosen, after=place, limit=limit + 1)

        found = listing(await self._pool.reading(read), limit, lambda last: token(chosen, *last[1]))
        return Listing([connection for connection, _ in found.items], found.next_page)


def _check_listing(wanted: ConnectionFilter, order: str | None) -> ConnectionOrder:
    """Return the order of a listing whose filters are sound."""
    if wanted.status is not None:
        check_choice("status", wanted.status, ConnectionStatus)
    check_filters(
        tenant_id=wanted.tenant_id,
        provider_slug=wanted.provider_slug,
        external_id_prefix=wanted.external_id_prefix,
    )
    chosen = ConnectionOrder.ID if order is None else order
    check_choice("order", chosen, ConnectionOrder)
    return ConnectionOrder(chosen)
