"""What people do with signals: look, and follow."""

import builtins
from datetime import datetime
from uuid import UUID

from syncline.errors import NotFound
from syncline.model import START, FollowBatch, Position, SignalFilter, StoredSignal
from syncline.services.base import BaseService
from syncline.services.pagination import Listing, listing, read_token, token
from syncline.services.validation import check_filters, check_times
from syncline.store.listings import follow as following
from syncline.store.listings import signals as signal_pages
from syncline.store.listings.follow import Looked
from syncline.store.listings.signals import read_page
from syncline.store.pool import Transaction

ALL_SIGNALS = SignalFilter()
OLDEST_FIRST, NEWEST_FIRST = "oldest", "newest"


class Signals(BaseService):
    async def get(self, signal_id: UUID, *, tenant_id: str | None = None) -> StoredSignal:
        async def read(tx: Transaction) -> StoredSignal:
            signal = await signal_pages.get(tx, signal_id, tenant_id)
            if signal is None:
                raise NotFound("signal", signal_id)
            return signal

        return await self._pool.reading(read)

    async def list(
        self,
        *,
        tenant_id: str | None = None,
        connection_id: UUID | None = None,
        provider_slug: str | None = None,
        kind: str | None = None,
        after: UUID | None = None,
        limit: int = 100,
    ) -> builtins.list[StoredSignal]:
        """Return signals in the order in which they were stored, from the one after `after`."""
        wanted = SignalFilter(tenant_id, connection_id, provider_slug, kind)
        _check_listing(wanted)

        async def read(tx: Transaction) -> builtins.list[StoredSignal]:
            place = None
            if after is not None:
                last = await signal_pages.get(tx, after, tenant_id)
                if last is None:
                    raise NotFound("signal", after)
                place = (last.received_at, last.id)
            return await read_page(tx, wanted, newest_first=False, after=place, limit=limit)

        return await self._pool.reading(read)

    async def page(
        self,
        wanted: SignalFilter = ALL_SIGNALS,
        *,
        after: str | None = None,
        newest_first: bool = True,
        limit: int = 100,
    ) -> Listing[StoredSignal]:
        """Return a page of signals by when they were stored."""
        _check_listing(wanted)
        order = NEWEST_FIRST if newest_first else OLDEST_FIRST
        place = read_token(after, order, datetime)

        async def read(tx: Transaction) -> builtins.list[StoredSignal]:
            return await read_page(
                tx, wanted, newest_first=newest_first, after=place, limit=limit + 1
            )

        found = await self._pool.reading(read)
        return listing(found, limit, lambda last: token(order, last.received_at, last.id))

    async def position(self) -> Position:
        """Return the position after all that can be told now: follow from there on."""
        return await self._pool.own.reading(following.read_end)

    async def follow(
        self,
        wanted: SignalFilter = ALL_SIGNALS,
        *,
        position: Position = START,
        limit: int = 500,
    ) -> FollowBatch:
        """Return what was stored after a position: each signal once, none left out.

        Only what was stored by transactions that ended before the oldest one still running is
        told; a transaction that stays open anywhere in the database server holds the rest back.
        `PositionLost` is raised for a position of signals that this database never had.
        """
        _check_listing(wanted)

        async def look(tx: Transaction) -> Looked:
            return await following.look(tx, wanted, position, limit=limit)

        async def read(tx: Transaction) -> builtins.list[StoredSignal]:
            return await following.read(tx, looked.ids)

        looked = await self._pool.own.reading(look)
        signals = await self._pool.reading(read) if looked.ids else []
        return FollowBatch(signals, looked.position, looked.is_caught_up, looked.server_changed)


def _check_listing(wanted: SignalFilter) -> None:
    check_filters(tenant_id=wanted.tenant_id, provider_slug=wanted.provider_slug, kind=wanted.kind)
    check_times(wanted.since, wanted.until)
