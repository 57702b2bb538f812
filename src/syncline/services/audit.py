"""Who changed what: the audit, page by page."""

import builtins
from datetime import datetime
from typing import TypedDict, Unpack
from uuid import UUID

from syncline.policy.audit import Action, ActorKind, AuditFilter, AuditRecord
from syncline.services.base import BaseService
from syncline.services.pagination import Listing, check_limit, cut_page, read_token, write_token
from syncline.services.validation import check_choice, check_filters, check_times
from syncline.store.listings.audit import read_page
from syncline.store.pool import Transaction

ORDER = "acted_at"


class AuditFilterFields(TypedDict, total=False):
    """Which rows a listing holds; None, or a key left out, stands for any."""

    tenant_id: str | None
    provider_slug: str | None
    connection_id: UUID | None
    actor: str | None
    action: str | None
    since: datetime | None
    until: datetime | None


class Audit(BaseService):
    async def list(
        self, *, after: str | None = None, limit: int = 100, **filters: Unpack[AuditFilterFields]
    ) -> Listing[AuditRecord]:
        """Return a page of what was done, newest first.

        Where a tenant's key asks, only that tenant's keys are named.
        """
        wanted = AuditFilter(**filters)
        _check(wanted)
        check_limit(limit)
        place = read_token(after, ORDER, datetime)
        is_tenants = self._actor.kind is ActorKind.TENANT_KEY

        async def read(tx: Transaction) -> builtins.list[AuditRecord]:
            found = await read_page(
                tx, wanted, before=place, limit=limit + 1, is_tenants=is_tenants
            )
            return [one.for_tenant() if is_tenants else one for one in found]

        # An index of arrays is read by a bitmap scan, which listings for people are denied.
        reading = self._pool.reading if wanted.connection_id is None else self._pool.retrying
        found = await reading(read)
        return cut_page(found, limit, lambda last: write_token(ORDER, last.acted_at, last.id))


def _check(wanted: AuditFilter) -> None:
    if wanted.action is not None:
        check_choice("action", wanted.action, Action)
    check_filters(
        tenant_id=wanted.tenant_id, provider_slug=wanted.provider_slug, actor=wanted.actor
    )
    check_times(since=wanted.since, until=wanted.until)
