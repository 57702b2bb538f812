"""Pages of signals in the order they were stored: one statement per index and direction."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from syncline.model import SignalFilter, StoredSignal
from syncline.sdk.json_text import read_json
from syncline.store.pool import Transaction

EARLIEST, LATEST = datetime(1, 2, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)
FIRST_ID, LAST_ID = UUID(int=0), UUID(int=2**128 - 1)


Place = tuple[datetime, UUID]
"""Where a page ended: when its last signal was stored, and its id."""


@dataclass(frozen=True, slots=True)
class SignalSlice:
    """Where a page begins, how many signals it holds at most, and whether with their payloads."""

    after: Place | None
    limit: int
    payloads: bool = True


FORWARD = """
    -- Signals of every tenant, oldest first.
    SELECT id, tenant_id, provider_slug, connection_id, job_id, kind, occurred_at, received_at,
           CASE WHEN $12::boolean THEN payload END AS payload, dedupe_key
      FROM {schema}.signals
     WHERE $1::text IS NULL AND $2::uuid IS NULL AND ($3::text IS NULL OR provider_slug = $3)
       AND ($4::text IS NULL OR kind = $4) AND received_at >= $5 AND received_at >= $7
       AND received_at < $6 AND (received_at, id) > ($7, $8)
       AND ($10::timestamptz IS NULL OR occurred_at >= $10)
       AND ($11::timestamptz IS NULL OR occurred_at < $11)
     ORDER BY received_at, id LIMIT $9
"""

BACKWARD = """
    -- Signals of every tenant, newest first.
    SELECT id, tenant_id, provider_slug, connection_id, job_id, kind, occurred_at, received_at,
           CASE WHEN $12::boolean THEN payload END AS payload, dedupe_key
      FROM {schema}.signals
     WHERE $1::text IS NULL AND $2::uuid IS NULL AND ($3::text IS NULL OR provider_slug = $3)
       AND ($4::text IS NULL OR kind = $4) AND received_at >= $5
       AND received_at < $6 AND received_at <= $7 AND (received_at, id) < ($7, $8)
       AND ($10::timestamptz IS NULL OR occurred_at >= $10)
       AND ($11::timestamptz IS NULL OR occurred_at < $11)
     ORDER BY received_at DESC, id DESC LIMIT $9
"""

FORWARD_OF_TENANT = """
    -- One tenant's signals, oldest first.
    SELECT id, tenant_id, provider_slug, connection_id, job_id, kind, occurred_at, received_at,
           CASE WHEN $12::boolean THEN payload END AS payload, dedupe_key
      FROM {schema}.signals
     WHERE tenant_id = $1 AND $2::uuid IS NULL AND ($3::text IS NULL OR provider_slug = $3)
       AND ($4::text IS NULL OR kind = $4) AND received_at >= $5
       AND received_at < $6 AND (received_at, id) > ($7, $8)
       AND ($10::timestamptz IS NULL OR occurred_at >= $10)
       AND ($11::timestamptz IS NULL OR occurred_at < $11)
     ORDER BY received_at, id LIMIT $9
"""

BACKWARD_OF_TENANT = """
    -- One tenant's signals, newest first.
    SELECT id, tenant_id, provider_slug, connection_id, job_id, kind, occurred_at, received_at,
           CASE WHEN $12::boolean THEN payload END AS payload, dedupe_key
      FROM {schema}.signals
     WHERE tenant_id = $1 AND $2::uuid IS NULL AND ($3::text IS NULL OR provider_slug = $3)
       AND ($4::text IS NULL OR kind = $4) AND received_at >= $5
       AND received_at < $6 AND (received_at, id) < ($7, $8)
       AND ($10::timestamptz IS NULL OR occurred_at >= $10)
       AND ($11::timestamptz IS NULL OR occurred_at < $11)
     ORDER BY received_at DESC, id DESC LIMIT $9
"""

FORWARD_OF_CONNECTION = """
    -- One connection's signals, oldest first.
    SELECT id, tenant_id, provider_slug, connection_id, job_id, kind, occurred_at, received_at,
           CASE WHEN $12::boolean THEN payload END AS payload, dedupe_key
      FROM {schema}.signals
     WHERE connection_id = $2 AND ($1::text IS NULL OR tenant_id = $1)
       AND ($3::text IS NULL OR provider_slug = $3) AND ($4::text IS NULL OR kind = $4)
       AND received_at >= $5 AND received_at < $6 AND (received_at, id) > ($7, $8)
       AND ($13::uuid IS NULL OR job_id = $13)
       AND ($10::timestamptz IS NULL OR occurred_at >= $10)
       AND ($11::timestamptz IS NULL OR occurred_at < $11)
     ORDER BY received_at, id LIMIT $9
"""

BACKWARD_OF_CONNECTION = """
    -- One connection's signals, newest first.
    SELECT id, tenant_id, provider_slug, connection_id, job_id, kind, occurred_at, received_at,
           CASE WHEN $12::boolean THEN payload END AS payload, dedupe_key
      FROM {schema}.signals
     WHERE connection_id = $2 AND ($1::text IS NULL OR tenant_id = $1)
       AND ($3::text IS NULL OR provider_slug = $3) AND ($4::text IS NULL OR kind = $4)
       AND received_at >= $5 AND received_at < $6 AND (received_at, id) < ($7, $8)
       AND ($13::uuid IS NULL OR job_id = $13)
       AND ($10::timestamptz IS NULL OR occurred_at >= $10)
       AND ($11::timestamptz IS NULL OR occurred_at < $11)
     ORDER BY received_at DESC, id DESC LIMIT $9
"""

GET = """
    -- One signal, which must be the tenant's if one is named.
    SELECT id, tenant_id, provider_slug, connection_id, job_id, kind, occurred_at, received_at,
           payload, dedupe_key
      FROM {schema}.signals
     WHERE id = $1 AND ($2::text IS NULL OR tenant_id = $2)
"""


async def read_page(
    tx: Transaction,
    wanted: SignalFilter,
    *,
    newest_first: bool,
    page: SignalSlice,
) -> list[StoredSignal]:
    """Return the next signals in this direction; with a job, its connection must be named too."""
    place = page.after or ((LATEST, LAST_ID) if newest_first else (EARLIEST, FIRST_ID))
    of_job = () if wanted.connection_id is None else (wanted.job_id,)
    rows = await tx.fetch(
        _statement(wanted, newest_first),
        *(wanted.tenant_id, wanted.connection_id, wanted.provider_slug, wanted.kind),
        wanted.since or EARLIEST,
        wanted.until or LATEST,
        *place,
        page.limit,
        wanted.occurred_since,
        wanted.occurred_until,
        page.payloads,
        *of_job,
    )
    return [read_signal(row) for row in rows]


async def get(tx: Transaction, signal_id: UUID, tenant_id: str | None) -> StoredSignal | None:
    row = await tx.fetchrow(GET, signal_id, tenant_id)
    return read_signal(row) if row is not None else None


def read_signal(row: Any) -> StoredSignal:
    values = dict(row)
    if values["payload"] is not None:
        values["payload"] = read_json(values["payload"])
    return StoredSignal(**values)


def _statement(wanted: SignalFilter, newest_first: bool) -> str:
    if wanted.connection_id is not None:
        return BACKWARD_OF_CONNECTION if newest_first else FORWARD_OF_CONNECTION
    if wanted.tenant_id is not None:
        return BACKWARD_OF_TENANT if newest_first else FORWARD_OF_TENANT
    return BACKWARD if newest_first else FORWARD
