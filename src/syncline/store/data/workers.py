"""The worker registry: one row per process, updated by its heartbeat."""

import json
from datetime import datetime
from typing import Any
from uuid import UUID

from syncline.model import Worker
from syncline.store.pool import Transaction

BEAT = """
    -- Record that a process is alive, and what it does.
    INSERT INTO {schema}.workers
           (id, host, pid, version, roles, providers, slots, busy, stopping, started_at, beat_at,
            not_for_tenants, declarations)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13::text::jsonb)
        ON CONFLICT (id) DO UPDATE
       SET providers = excluded.providers, busy = excluded.busy, stopping = excluded.stopping,
           beat_at = excluded.beat_at, not_for_tenants = excluded.not_for_tenants,
           declarations = CASE WHEN workers.declarations = excluded.declarations
                               THEN workers.declarations  -- it is not stored again
                               ELSE excluded.declarations END
"""


async def beat(tx: Transaction, worker: Worker, declarations: str = "{}") -> None:
    await tx.execute(
        BEAT,
        worker.id,
        worker.host,
        worker.pid,
        worker.version,
        worker.roles,
        worker.providers,
        worker.slots,
        worker.busy,
        worker.stopping,
        worker.started_at,
        worker.beat_at,
        worker.not_for_tenants,
        declarations,
    )


LEAVE = """
    -- Remove a process that ends.
    DELETE FROM {schema}.workers WHERE id = $1
"""


async def leave(tx: Transaction, worker_id: UUID) -> None:
    await tx.execute(LEAVE, worker_id)


FORGET_DEAD = """
    -- Remove processes that have been silent for long.
    DELETE FROM {schema}.workers
     WHERE id = ANY (ARRAY(SELECT id FROM {schema}.workers WHERE beat_at < $1
                            ORDER BY id FOR UPDATE SKIP LOCKED))
"""


async def forget_dead(tx: Transaction, *, silent_since: datetime) -> int:
    return await tx.execute(FORGET_DEAD, silent_since)


LIST = """
    -- Every process: live ones first, then by start.
    SELECT id, host, pid, version, roles, providers, slots, busy, stopping, started_at, beat_at,
           not_for_tenants,
           CASE WHEN beat_at < $1 THEN 'dead' WHEN stopping THEN 'stopping' ELSE 'alive' END
           AS status
      FROM {schema}.workers
     ORDER BY beat_at < $1, started_at, id
"""


async def list_all(tx: Transaction, *, silent_since: datetime) -> list[Worker]:
    return [Worker(**row) for row in await tx.fetch(LIST, silent_since)]


NOT_FOR_TENANTS = """
    -- The providers that some live process cannot confine.
    SELECT DISTINCT unnest(not_for_tenants) AS provider FROM {schema}.workers WHERE beat_at >= $1
"""


async def not_for_tenants(tx: Transaction, *, silent_since: datetime) -> set[str]:
    return {row["provider"] for row in await tx.fetch(NOT_FOR_TENANTS, silent_since)}


SERVED = """
    -- The providers that some live process serves, and what the newest of each declares.
    SELECT DISTINCT ON (provider) provider, declarations -> provider AS declared
      FROM {schema}.workers, unnest(providers) AS provider
     WHERE beat_at >= $1
     ORDER BY provider, declarations -> provider IS NULL, started_at DESC, id
"""


async def served_providers(tx: Transaction, *, silent_since: datetime) -> dict[str, Any]:
    """Return what is declared of each provider that a live process serves; None if nothing."""
    rows = await tx.fetch(SERVED, silent_since)
    return {row["provider"]: json.loads(row["declared"] or "null") for row in rows}


FIRST = """
    -- The live process that started first.
    SELECT id FROM {schema}.workers
     WHERE beat_at >= $1 AND NOT stopping ORDER BY started_at, id LIMIT 1
"""


async def first(tx: Transaction, *, silent_since: datetime) -> UUID | None:
    found: UUID | None = await tx.fetchval(FIRST, silent_since)
    return found
