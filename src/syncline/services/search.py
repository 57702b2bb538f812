"""Find connections, jobs, signals and tenants by a part of their names or ids."""

import contextlib
import re
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from syncline.connection_name import ConnectionName
from syncline.errors import Invalid
from syncline.services.base import BaseService
from syncline.services.validation import check_filters
from syncline.store.data import connections
from syncline.store.listings import search, signals
from syncline.store.listings.search import FoundConnection, FoundJob, IdRange
from syncline.store.pool import Transaction

FOUND = 20  # of each kind
ID_PART = re.compile(r"[0-9a-f-]{4,36}")
SHORT_ID = re.compile(r"([0-9a-f]{8})(?:…|\.\.\.)([0-9a-f]{4})")
BEGINNING = 8  # of an id that is looked up by an index: its first digits are its time
DIGITS = 32


@dataclass(frozen=True, slots=True)
class Findings:
    """What was found, newest first.

    `searched_to` is when the oldest connection was added that was searched; None if all were, or
    enough were found.
    """

    tenants: list[str]
    connections: list[FoundConnection]
    jobs: list[FoundJob]
    signal_id: UUID | None = None
    searched_to: datetime | None = None


class Search(BaseService):
    async def find(self, text: str, *, tenant_id: str | None = None) -> Findings:
        """Return what has the text in its name or id: a whole name, an id, or a part of one.

        Parts are searched in the newest 400,000 connections and 200,000 jobs, and the first 10,000
        tenants by name. Whole ids, ids as pages show them, their first eight digits, whole external
        ids and `TENANT/PROVIDER/EXTERNAL_ID` are found however many there are.
        """
        check_filters(q=text, tenant_id=tenant_id)

        async def read(tx: Transaction) -> Findings:
            return await _find(tx, text, tenant_id)

        return await self._pool.reading(read)


async def _find(tx: Transaction, text: str, tenant_id: str | None) -> Findings:
    lowered = text.lower()
    range_ = _range_of(lowered)
    if range_ is not None:
        found = await _find_by_id(tx, range_, tenant_id)
        if found.connections or found.jobs or found.signal_id:
            return found
    id_part = lowered if ID_PART.fullmatch(lowered) else None
    tenants = await search.find_tenants(tx, text, limit=FOUND) if tenant_id is None else []
    named = await _find_named(tx, text, tenant_id)
    parts = await search.find_connections(tx, tenant_id, text, id_part, FOUND)
    searched_to = await search.last_searched(tx, tenant_id) if len(parts) < FOUND else None
    if tenant_id is None and all(one.external_id != text for one in parts):
        named += await search.find_by_external_id(tx, text, limit=FOUND)
    jobs = await search.find_jobs(tx, tenant_id, id_part, limit=FOUND) if id_part else []
    both = {one.id: one for one in (*named, *parts)}
    best = sorted(both.values(), key=lambda one: _distance(one.external_id.lower(), lowered))
    return Findings(tenants, best[:FOUND], jobs, None, searched_to)


async def _find_by_id(tx: Transaction, range_: IdRange, tenant_id: str | None) -> Findings:
    signal = None
    if range_.first == range_.last:
        signal = await signals.get(tx, range_.first, tenant_id)
    return Findings(
        [],
        await search.find_connections_by_id(tx, tenant_id, range_, limit=FOUND),
        await search.find_jobs_by_id(tx, tenant_id, range_, limit=FOUND),
        signal.id if signal else None,
    )


async def _find_named(tx: Transaction, text: str, tenant_id: str | None) -> list[FoundConnection]:
    """Return the connection whose whole name the text is."""
    name = ConnectionName.parse(text)
    if name is None or tenant_id not in (None, name.tenant_id):
        return []
    key = (name.tenant_id, name.provider_slug, name.external_id)
    with contextlib.suppress(Invalid):
        check_filters(tenant=key[0], provider=key[1], external_id=key[2])
        return await _named(tx, await connections.find(tx, key), tenant_id)
    return []


async def _named(tx: Transaction, id_: UUID | None, tenant_id: str | None) -> list[FoundConnection]:
    one = await connections.get(tx, id_, tenant_id) if id_ else None
    if one is None:
        return []
    return [FoundConnection(one.id, one.tenant_id, one.provider_slug, one.external_id, one.status)]


def _range_of(text: str) -> IdRange | None:
    """Return the ids that a text may be, if it is an id, its beginning, or one that is shown."""
    shown = SHORT_ID.fullmatch(text)
    start, end = shown.groups() if shown else (text, "")
    digits = start.replace("-", "")
    if not shown and not ID_PART.fullmatch(start):
        return None
    if not BEGINNING <= len(digits) <= DIGITS:
        return None
    return IdRange(UUID(digits.ljust(DIGITS, "0")), UUID(digits.ljust(DIGITS, "f")), end)


def _distance(name: str, text: str) -> int:
    return 0 if name == text else 1 if name.startswith(text) else 2
