"""Everything that one tenant has, to count it, to hand it over, or to remove it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

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


@dataclass(frozen=True, slots=True)
class TenantSize:
    connections: int
    jobs: int
    signals: int

    @property
    def rows(self) -> int:
        return self.connections + self.jobs + self.signals


async def count(tx: Transaction, tenant_id: str) -> TenantSize:
    return TenantSize(
        connections=await tx.fetchval(COUNT_CONNECTIONS, tenant_id, timeout=300),
        jobs=await tx.fetchval(COUNT_JOBS, tenant_id, timeout=300),
        signals=await tx.fetchval(COUNT_SIGNALS, tenant_id, timeout=300),
    )


NEXT_CONNECTIONS = """
    -- A tenant's next connections in the order of their ids, whole.
    SELECT id, tenant_id, provider_slug, external_id, status, status_reason, config, metadata,
           created_at, updated_at
      FROM {schema}.connections
     WHERE tenant_id = $1 AND id > $2
     ORDER BY id LIMIT $3
"""


async def next_connections(
    tx: Transaction, tenant_id: str, *, after: UUID, limit: int
) -> Sequence[Any]:
    rows: Sequence[Any] = await tx.fetch(NEXT_CONNECTIONS, tenant_id, after, limit)
    return rows


NEXT_JOBS = """
    -- A connection's next jobs in the order of their ids, whole.
    SELECT id, tenant_id, provider_slug, connection_id, job_type, status, priority, attempts,
           scheduled_at, retry_after, started_at, finished_at, cursor, error, slot_at, created_at,
           updated_at
      FROM {schema}.sync_jobs
     WHERE connection_id = $1 AND id > $2
     ORDER BY id LIMIT $3
"""


async def next_jobs(
    tx: Transaction, connection_id: UUID, *, after: UUID, limit: int
) -> Sequence[Any]:
    rows: Sequence[Any] = await tx.fetch(NEXT_JOBS, connection_id, after, limit)
    return rows


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
