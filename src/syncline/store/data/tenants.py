"""The rows of one tenant: count, export, delete, and measure them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from syncline.model import TenantSize
from syncline.store.pool import Transaction

COUNT_CONNECTIONS = """
    -- A tenant's connections.
    SELECT count(*) FROM {schema}.connections WHERE tenant_id = $1
"""

COUNT_JOBS = """
    -- The jobs of a tenant's connections.
    SELECT count(*) FROM {schema}.connections c
      JOIN {schema}.sync_jobs j ON j.connection_id = c.id
     WHERE c.tenant_id = $1
"""

COUNT_SIGNALS = """
    -- A tenant's signals, also those whose connection is deleted.
    SELECT count(*) FROM {schema}.signals WHERE tenant_id = $1
"""


COUNT_KEYS = """
    -- A tenant's keys that were not revoked.
    SELECT count(*) FROM {schema}.api_keys WHERE tenant_id = $1 AND revoked_at IS NULL
"""


async def count(tx: Transaction, tenant_id: str) -> TenantSize:
    return TenantSize(
        connections=await tx.fetchval(COUNT_CONNECTIONS, tenant_id, timeout=300),
        jobs=await tx.fetchval(COUNT_JOBS, tenant_id, timeout=300),
        signals=await tx.fetchval(COUNT_SIGNALS, tenant_id, timeout=300),
        keys=await tx.fetchval(COUNT_KEYS, tenant_id),
    )


NEXT_CONNECTIONS = """
    -- A tenant's next connections by id, each as the JSON that Postgres writes.
    SELECT c.id, to_json(c)::text AS line
      FROM (SELECT id, tenant_id, provider_slug, external_id, status, status_reason, config,
                   metadata, created_at, updated_at
              FROM {schema}.connections WHERE tenant_id = $1 AND id > $2) c
     ORDER BY c.id LIMIT $3
"""

NEXT_JOBS = """
    -- A connection's next jobs, likewise.
    SELECT j.id, to_json(j)::text AS line
      FROM (SELECT id, tenant_id, provider_slug, connection_id, job_type, status, priority,
                   attempts, scheduled_at, retry_after, started_at, finished_at, cursor, error,
                   slot_at, created_at, updated_at, brought
              FROM {schema}.sync_jobs WHERE connection_id = $1 AND id > $2) j
     ORDER BY j.id LIMIT $3
"""

NEXT_SIGNALS = """
    -- A tenant's next signals in the order they were stored, likewise.
    SELECT s.id, s.received_at, to_json(s)::text AS line
      FROM (SELECT id, tenant_id, provider_slug, connection_id, job_id, kind, occurred_at,
                   received_at, payload, dedupe_key
              FROM {schema}.signals
             WHERE tenant_id = $1 AND (received_at, id) > ($2, $3)) s
     ORDER BY s.received_at, s.id LIMIT $4
"""


@dataclass(frozen=True, slots=True)
class Line:
    """A row as JSON, and its id."""

    id: UUID
    json: str


FIRST_PLACE = (datetime(1, 1, 1, tzinfo=UTC), UUID(int=0))


async def connections(tx: Transaction, tenant_id: str, after: UUID, limit: int) -> list[Line]:
    rows = await tx.fetch(NEXT_CONNECTIONS, tenant_id, after, limit)
    return [Line(row["id"], row["line"]) for row in rows]


async def jobs(tx: Transaction, connection_id: UUID, after: UUID, limit: int) -> list[Line]:
    rows = await tx.fetch(NEXT_JOBS, connection_id, after, limit)
    return [Line(row["id"], row["line"]) for row in rows]


async def signals(
    tx: Transaction, tenant_id: str, after: tuple[datetime, UUID], limit: int
) -> tuple[list[Line], tuple[datetime, UUID]]:
    """Return the next signals, and the place to continue from."""
    rows = await tx.fetch(NEXT_SIGNALS, tenant_id, *after, limit)
    place = (rows[-1]["received_at"], rows[-1]["id"]) if rows else after
    return [Line(row["id"], row["line"]) for row in rows], place


DELETE_JOBS = """
    -- Delete some finished jobs of a connection that is about to be deleted.
    DELETE FROM {schema}.sync_jobs
     WHERE id = ANY (ARRAY(SELECT id FROM {schema}.sync_jobs
                            WHERE connection_id = $1 AND finished_at IS NOT NULL
                            ORDER BY finished_at LIMIT $2 FOR UPDATE SKIP LOCKED))
"""


async def delete_jobs(tx: Transaction, connection_id: UUID, *, limit: int) -> int:
    return await tx.execute(DELETE_JOBS, connection_id, limit)


DELETE_SIGNALS = """
    -- Delete some of a tenant's signals.
    DELETE FROM {schema}.signals
     WHERE id = ANY (ARRAY(SELECT id FROM {schema}.signals WHERE tenant_id = $1 LIMIT $2))
"""


async def delete_signals(tx: Transaction, tenant_id: str, *, limit: int) -> int:
    return await tx.execute(DELETE_SIGNALS, tenant_id, limit)


LOCK_USAGE = """
    -- Lock a tenant's row, and create it if it is missing.
    INSERT INTO {schema}.tenant_usage AS usage (tenant_id) VALUES ($1)
        ON CONFLICT (tenant_id) DO UPDATE SET stored_bytes = usage.stored_bytes
"""

HAS_MORE_CONNECTIONS = """
    -- Whether a tenant has more than $2 connections; reads one more at most.
    SELECT count(*) > $2::bigint
      FROM (SELECT FROM {schema}.connections WHERE tenant_id = $1 LIMIT $2::bigint + 1) AS few
"""


async def has_more_connections(tx: Transaction, tenant_id: str, number: int) -> bool:
    """Return whether a tenant has more connections, those of this transaction included.

    Another transaction that asks the same waits until this one ends.
    """
    await tx.execute(LOCK_USAGE, tenant_id)
    return bool(await tx.fetchval(HAS_MORE_CONNECTIONS, tenant_id, number))


MEASURE_SIGNALS = """
    -- The bytes that each tenant has in the next signals by id, and the last id. A payload counts
    -- at its stored, compressed size, and is not read for that.
    WITH page AS MATERIALIZED (
        SELECT id, tenant_id, pg_column_size(payload) + $3::int AS bytes
          FROM {schema}.signals WHERE id > $1 ORDER BY id LIMIT $2
    )
    SELECT tenant_id, sum(bytes)::bigint AS bytes,
           (SELECT id FROM page ORDER BY id DESC LIMIT 1) AS last
      FROM page GROUP BY tenant_id
"""


@dataclass(frozen=True, slots=True)
class MeasuredBatch:
    """The bytes of each tenant in a batch of signals, and its last id; None at the end."""

    bytes_by_tenant: dict[str, int]
    last: UUID | None


async def measure_signals(
    tx: Transaction, *, after: UUID, limit: int, bytes_beside_payload: int
) -> MeasuredBatch:
    rows = await tx.fetch(MEASURE_SIGNALS, after, limit, bytes_beside_payload)
    found = {row["tenant_id"]: row["bytes"] for row in rows}
    return MeasuredBatch(found, rows[0]["last"] if rows else None)


SAVE_USAGE = """
    -- Save the bytes that each tenant stores.
    INSERT INTO {schema}.tenant_usage (tenant_id, stored_bytes, measured_at)
    SELECT measured.tenant_id, measured.bytes, $3::timestamptz
      FROM unnest($1::text[], $2::bigint[]) AS measured (tenant_id, bytes)
     WHERE char_length(measured.tenant_id) BETWEEN 1 AND 255
     ORDER BY measured.tenant_id
        ON CONFLICT (tenant_id) DO UPDATE
       SET stored_bytes = EXCLUDED.stored_bytes, measured_at = EXCLUDED.measured_at
"""

SAVE_NO_USAGE = """
    -- Set tenants that store nothing any more to 0.
    UPDATE {schema}.tenant_usage SET stored_bytes = 0, measured_at = $2
     WHERE stored_bytes > 0 AND NOT tenant_id = ANY ($1::text[])
"""


async def save_usage(tx: Transaction, bytes_by_tenant: Mapping[str, int], *, now: datetime) -> None:
    tenants = sorted(bytes_by_tenant)
    await tx.execute(SAVE_USAGE, tenants, [bytes_by_tenant[tenant] for tenant in tenants], now)
    await tx.execute(SAVE_NO_USAGE, tenants, now)


READ_USAGE = """
    -- The bytes that a tenant stored at the last measurement.
    SELECT stored_bytes FROM {schema}.tenant_usage WHERE tenant_id = $1
"""


async def read_stored_bytes(tx: Transaction, tenant_id: str) -> int:
    return await tx.fetchval(READ_USAGE, tenant_id) or 0


NEXT_ACTIVE = """
    -- The next active connections of these tenants, in the order of their ids.
    SELECT id FROM {schema}.connections
     WHERE status = 'active' AND tenant_id = ANY ($1::text[]) AND id > $2
     ORDER BY id LIMIT $3
"""


async def next_active(
    tx: Transaction, tenants: Sequence[str], *, after: UUID, limit: int
) -> list[UUID]:
    return [row["id"] for row in await tx.fetch(NEXT_ACTIVE, tenants, after, limit)]


DELETE_USAGE = """
    -- Delete a tenant's measurement.
    DELETE FROM {schema}.tenant_usage WHERE tenant_id = $1
"""


async def delete_usage(tx: Transaction, tenant_id: str) -> None:
    await tx.execute(DELETE_USAGE, tenant_id)
