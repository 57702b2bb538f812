"""Everything that one tenant has, to count it, to hand it over, or to remove it."""

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
    -- A tenant's signals, also those that outlived their connection.
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
    -- A tenant's next connections in the order of their ids, each as Postgres itself writes JSON.
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
                   slot_at, created_at, updated_at
              FROM {schema}.sync_jobs WHERE connection_id = $1 AND id > $2) j
     ORDER BY j.id LIMIT $3
"""

NEXT_SIGNALS = """
    -- A tenant's next signals in the order in which they were stored, likewise.
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
    """Return the next signals, and the place to go on from."""
    rows = await tx.fetch(NEXT_SIGNALS, tenant_id, *after, limit)
    place = (rows[-1]["received_at"], rows[-1]["id"]) if rows else after
    return [Line(row["id"], row["line"]) for row in rows], place


DELETE_JOBS = """
    -- Remove some finished jobs of a connection that is about to go.
    DELETE FROM {schema}.sync_jobs
     WHERE id = ANY (ARRAY(SELECT id FROM {schema}.sync_jobs
                            WHERE connection_id = $1 AND finished_at IS NOT NULL
                            ORDER BY finished_at LIMIT $2 FOR UPDATE SKIP LOCKED))
"""


async def delete_jobs(tx: Transaction, connection_id: UUID, *, limit: int) -> int:
    return await tx.execute(DELETE_JOBS, connection_id, limit)


DELETE_SIGNALS = """
    -- Remove some of a tenant's signals.
    DELETE FROM {schema}.signals
     WHERE id = ANY (ARRAY(SELECT id FROM {schema}.signals WHERE tenant_id = $1 LIMIT $2))
"""


async def delete_signals(tx: Transaction, tenant_id: str, *, limit: int) -> int:
    return await tx.execute(DELETE_SIGNALS, tenant_id, limit)
