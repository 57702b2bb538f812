"""What people do with signals: get, list and follow them."""

import builtins
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypedDict, Unpack
from uuid import UUID

from syncline.errors import NotFound
from syncline.model import START, FollowBatch, Position, SignalFilter, StoredSignal
from syncline.services.base import BaseService
from syncline.services.pagination import Listing, check_limit, cut_page, read_token, write_token
from syncline.services.validation import check_filters, check_times, get_job
from syncline.store.listings import follow as followed
from syncline.store.listings import signals as listed
from syncline.store.listings.follow import FollowIds
from syncline.store.listings.signals import SignalSlice
from syncline.store.pool import Transaction

ALL_SIGNALS = SignalFilter()
OLDEST_FIRST, NEWEST_FIRST = "oldest", "newest"


class SignalFilterFields(TypedDict, total=False):
    """Which signals a listing holds; None, or a key left out, stands for any."""

    tenant_id: str | None
    connection_id: UUID | None
    provider_slug: str | None
    kind: str | None
    job_id: UUID | None
    since: datetime | None
    until: datetime | None
    occurred_since: datetime | None
    occurred_until: datetime | None


class Signals(BaseService):
    async def get(self, signal_id: UUID, *, tenant_id: str | None = None) -> StoredSignal:
        async def read(tx: Transaction) -> StoredSignal:
            signal = await listed.get(tx, signal_id, tenant_id)
            if signal is None:
                raise NotFound("signal", signal_id)
            return signal

        return await self._pool.reading(read)

    async def list(
        self,
        *,
        newest_first: bool = False,
        after: str | None = None,
        limit: int = 100,
        payloads: bool = True,
        **filters: Unpack[SignalFilterFields],
    ) -> Listing[StoredSignal]:
        """Return a page of signals in the order they were stored.

        Without `payloads`, each payload is None, and none is read.
        """
        wanted = SignalFilter(**filters)
        _check_filter(wanted)
        check_limit(limit)
        order = NEWEST_FIRST if newest_first else OLDEST_FIRST
        page = SignalSlice(read_token(after, order, datetime), limit + 1, payloads)

        async def read(tx: Transaction) -> builtins.list[StoredSignal]:
            of_job = await _within_job(tx, wanted)
            return await listed.read_page(tx, of_job, newest_first=newest_first, page=page)

        found = await self._pool.reading(read)
        return cut_page(found, limit, lambda last: write_token(order, last.received_at, last.id))

    async def position(self) -> Position:
        """Return the position after every signal that can be followed now."""
        return await self._pool.own.reading(followed.read_end)

    async def follow(
        self,
        wanted: SignalFilter = ALL_SIGNALS,
        *,
        position: Position = START,
        limit: int = 500,
    ) -> FollowBatch:
        """Return what was stored after a position: each signal once, and none left out.

        A signal appears once every transaction older than its own has ended, so a transaction that
        stays open anywhere on the database server holds later signals back. A position that this
        database does not know raises PositionLost.
        """
        _check_filter(wanted)

        async def find(tx: Transaction) -> FollowIds:
            return await followed.find(tx, wanted, position, limit=limit)

        async def read(tx: Transaction) -> builtins.list[StoredSignal]:
            return await followed.read(tx, found.ids)

        found = await self._pool.own.reading(find)
        signals = await self._pool.reading(read) if found.ids else []
        return FollowBatch(signals, found.position, found.is_caught_up, found.server_changed)


async def _within_job(tx: Transaction, wanted: SignalFilter) -> SignalFilter:
    """Return the filter with the connection and the times of its job, by which signals are found.

    No index leads from a job to its signals: every signal would have to maintain it.
    """
    if wanted.job_id is None:
        return wanted
    job = await get_job(tx, wanted.job_id, wanted.tenant_id)
    if wanted.connection_id not in (None, job.connection_id):
        return replace(wanted, since=job.created_at, until=job.created_at)  # nothing matches both
    began = min(job.created_at, job.started_at or job.created_at)
    since = max(began, wanted.since or began)
    if job.finished_at is None:
        return replace(wanted, connection_id=job.connection_id, since=since)
    # Its last signals were stored in the transaction that finished it.
    ended = max(job.updated_at, job.finished_at) + timedelta(microseconds=1)
    until = min(ended, wanted.until or ended)
    return replace(wanted, connection_id=job.connection_id, since=since, until=until)


def _check_filter(wanted: SignalFilter) -> None:
    check_filters(tenant_id=wanted.tenant_id, provider_slug=wanted.provider_slug, kind=wanted.kind)
    times = ("since", "until", "occurred_since", "occurred_until")
    check_times(**{name: getattr(wanted, name) for name in times})
