"""Pages of connections: one statement for each index that can find them.

The filters choose the index, not the planner: a tenant, or any status but active. The statement
checks the other filters row by row. Every order ends in the id.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from syncline.model import Connection, ConnectionFilter, ConnectionOrder, ConnectionStatus
from syncline.store.data.connections import read_connection
from syncline.store.pool import Transaction

NEVER = datetime(1, 2, 1, tzinfo=UTC)  # sorts first; asyncpg reads the earliest time as infinite
FIRST_ID = UUID(int=0)
# How many connections are looked at for the oldest last run, one number after the other.
LOOKED_AT = (1_000, 10_000, 2**31)

Place = tuple[Any, UUID]
"""Where a page ended: the sort key (None in the order of ids), and the id."""

BY_ID = """
    -- Connections of every tenant, by id.
    SELECT id, tenant_id, provider_slug, external_id, status, config, metadata, status_reason,
           created_at, updated_at, last_finished_at
      FROM {schema}.connections
     WHERE ($1::text IS NULL OR tenant_id = $1) AND ($2::text IS NULL OR provider_slug = $2)
       AND ($3::text IS NULL OR status = $3) AND ($4::text IS NULL OR starts_with(external_id, $4))
       AND $5::text IS NULL AND id > $6
     ORDER BY id LIMIT $7
"""

BY_STATUS = """
    -- Connections that are not active, by id.
    SELECT id, tenant_id, provider_slug, external_id, status, config, metadata, status_reason,
           created_at, updated_at, last_finished_at
      FROM {schema}.connections
     WHERE status = $3 AND status <> 'active' AND ($1::text IS NULL OR tenant_id = $1)
       AND ($2::text IS NULL OR provider_slug = $2)
       AND ($4::text IS NULL OR starts_with(external_id, $4))
       AND $5::text IS NULL AND id > $6
     ORDER BY id LIMIT $7
"""

BY_TENANT = """
    -- One tenant's connections, by id.
    SELECT id, tenant_id, provider_slug, external_id, status, config, metadata, status_reason,
           created_at, updated_at, last_finished_at
      FROM {schema}.connections
     WHERE tenant_id = $1 AND ($2::text IS NULL OR provider_slug = $2)
       AND ($3::text IS NULL OR status = $3) AND ($4::text IS NULL OR starts_with(external_id, $4))
       AND $5::text IS NULL AND id > $6
     ORDER BY id LIMIT $7
"""

BY_NAME = """
    -- Connections of every tenant, by external id. There is no index for this: every run would
    -- have to update it.
    SELECT id, tenant_id, provider_slug, external_id, status, config, metadata, status_reason,
           created_at, updated_at, last_finished_at
      FROM {schema}.connections
     WHERE $1::text IS NULL AND ($2::text IS NULL OR provider_slug = $2)
       AND ($3::text IS NULL OR status = $3) AND ($4::text IS NULL OR starts_with(external_id, $4))
       AND (external_id COLLATE "C", id) > ($5, $6)
     ORDER BY external_id COLLATE "C", id LIMIT $7
"""

BY_NAME_IN_TENANT = """
    -- One tenant's connections, by external id.
    SELECT id, tenant_id, provider_slug, external_id, status, config, metadata, status_reason,
           created_at, updated_at, last_finished_at
      FROM {schema}.connections
     WHERE tenant_id = $1 AND ($2::text IS NULL OR provider_slug = $2)
       AND ($3::text IS NULL OR status = $3) AND ($4::text IS NULL OR starts_with(external_id, $4))
       AND (external_id COLLATE "C", id) > ($5, $6)
     ORDER BY external_id COLLATE "C", id LIMIT $7
"""

BY_STALENESS = """
    -- Connections of every tenant, the oldest last run first, among those whose own copy of it is
    -- the oldest. A copy is never newer than the truth, so all others have run since the last copy
    -- among these. There is no index for this: every run would have to update it.
    WITH oldest AS MATERIALIZED (
        SELECT * FROM {schema}.connections
         WHERE $1::text IS NULL AND ($2::text IS NULL OR provider_slug = $2)
           AND ($3::text IS NULL OR status = $3)
           AND ($4::text IS NULL OR starts_with(external_id, $4))
         ORDER BY coalesce(last_finished_at, '0001-02-01 00:00:00+00'), id LIMIT $8
    ), seen AS (
        SELECT count(*) AS count, max(coalesce(last_finished_at, '0001-02-01 00:00:00+00')) AS until
          FROM oldest
    )
    SELECT c.id, tenant_id, provider_slug, external_id, status, config, metadata, status_reason,
           created_at, updated_at,
           greatest(c.last_finished_at, done.finished_at) AS last_finished_at,
           seen.count < $8 AS is_everybody,
           coalesce(greatest(c.last_finished_at, done.finished_at), '0001-02-01 00:00:00+00')
               < seen.until AS is_certain
      FROM oldest c CROSS JOIN seen
      LEFT JOIN LATERAL (
           SELECT j.finished_at FROM {schema}.sync_jobs j
            WHERE j.connection_id = c.id AND {is_completion}
            ORDER BY j.finished_at DESC LIMIT 1) done ON true
     WHERE (coalesce(greatest(c.last_finished_at, done.finished_at), '0001-02-01 00:00:00+00'),
            c.id) > ($5, $6)
     ORDER BY coalesce(greatest(c.last_finished_at, done.finished_at), '0001-02-01 00:00:00+00'),
              c.id LIMIT $7
"""

BY_STALENESS_IN_TENANT = """
    -- One tenant's connections, the oldest last run first.
    SELECT c.id, tenant_id, provider_slug, external_id, status, config, metadata, status_reason,
           created_at, updated_at,
           greatest(c.last_finished_at, done.finished_at) AS last_finished_at
      FROM {schema}.connections c
      LEFT JOIN LATERAL (
           SELECT j.finished_at FROM {schema}.sync_jobs j
            WHERE j.connection_id = c.id AND {is_completion}
            ORDER BY j.finished_at DESC LIMIT 1) done ON true
     WHERE tenant_id = $1 AND ($2::text IS NULL OR provider_slug = $2)
       AND ($3::text IS NULL OR status = $3) AND ($4::text IS NULL OR starts_with(external_id, $4))
       AND (coalesce(greatest(c.last_finished_at, done.finished_at), '0001-02-01 00:00:00+00'),
            c.id) > ($5, $6)
     ORDER BY coalesce(greatest(c.last_finished_at, done.finished_at), '0001-02-01 00:00:00+00'),
              c.id LIMIT $7
"""

LAST_FINISHED = """
    -- When these connections last finished a run; their own copy may be older.
    SELECT c.id, greatest(c.last_finished_at, done.finished_at) AS last_finished_at
      FROM unnest($1::uuid[]) AS shown (id)
      JOIN {schema}.connections c ON c.id = shown.id
     CROSS JOIN LATERAL (
           SELECT max(last.finished_at) AS finished_at FROM (
               SELECT j.finished_at FROM {schema}.sync_jobs j
                WHERE j.connection_id = c.id AND {is_completion}
                ORDER BY j.finished_at DESC LIMIT 1) last) done
"""


async def read_pages(
    tx: Transaction,
    wanted: Sequence[ConnectionFilter],
    order: ConnectionOrder,
    *,
    after: Place | None,
    limit: int,
) -> list[tuple[Connection, Place]]:
    """Return the next connections that any of the filters wants; they differ in the status alone.

    Each filter has its own statement, because one with all statuses would use no partial index.
    """
    pages = [await read_page(tx, one, order, after=after, limit=limit) for one in wanted]
    if len(pages) == 1:
        return pages[0]
    found = [one for page in pages for one in page]
    return sorted(found, key=lambda one: (one[1][0] or "", one[1][1]))[:limit]


async def read_page(
    tx: Transaction,
    wanted: ConnectionFilter,
    order: ConnectionOrder,
    *,
    after: Place | None,
    limit: int,
) -> list[tuple[Connection, Place]]:
    """Return the next connections in the order, each with its place."""
    key, id_ = after or (_beginning(order), FIRST_ID)
    filters = (wanted.tenant_id, wanted.provider_slug, wanted.status, wanted.external_id_prefix)
    statement, everything = _statement(wanted, order), (*filters, key, id_, limit)
    if statement is BY_STALENESS:
        rows = await _read_stalest(tx, everything, limit)
    else:
        rows = await tx.fetch(statement, *everything)
    finished = await tx.fetch(LAST_FINISHED, [row["id"] for row in rows]) if rows else ()
    last_finished_at = {row["id"]: row["last_finished_at"] for row in finished}
    return [
        (
            replace(read_connection(row), last_finished_at=last_finished_at.get(row["id"])),
            _place(row, order),
        )
        for row in rows
    ]


async def _read_stalest(tx: Transaction, arguments: Sequence[Any], limit: int) -> Sequence[Any]:
    """Look at more and more connections, until nobody else can have an older last run."""
    rows: Sequence[Any] = ()
    for looked_at in LOOKED_AT:
        rows = await tx.fetch(BY_STALENESS, *arguments, looked_at)
        is_certain = len(rows) >= limit and rows[-1]["is_certain"]
        if is_certain or (rows and rows[0]["is_everybody"]):
            break
    return rows


def _place(row: Any, order: ConnectionOrder) -> Place:
    if order is ConnectionOrder.EXTERNAL_ID:
        return row["external_id"], row["id"]
    if order is ConnectionOrder.STALENESS:
        return row["last_finished_at"] or NEVER, row["id"]
    return None, row["id"]


def _beginning(order: ConnectionOrder) -> Any:
    return {
        ConnectionOrder.ID: None,
        ConnectionOrder.EXTERNAL_ID: "",
        ConnectionOrder.STALENESS: NEVER,
    }[order]


def _statement(wanted: ConnectionFilter, order: ConnectionOrder) -> str:
    if wanted.tenant_id is not None:
        return {
            ConnectionOrder.ID: BY_TENANT,
            ConnectionOrder.EXTERNAL_ID: BY_NAME_IN_TENANT,
            ConnectionOrder.STALENESS: BY_STALENESS_IN_TENANT,
        }[order]
    if order is ConnectionOrder.STALENESS:
        return BY_STALENESS
    if order is ConnectionOrder.EXTERNAL_ID:
        return BY_NAME
    is_status_rare = wanted.status not in (None, ConnectionStatus.ACTIVE)
    return BY_STATUS if is_status_rare else BY_ID
