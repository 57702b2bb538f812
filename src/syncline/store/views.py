"""What people look at: listings by key, never by offset, and a summary of everything."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from syncline.model import Connection, Job, StoredSignal
from syncline.sdk.jsontext import read_json
from syncline.store.connections import read_connection
from syncline.store.pool import Transaction
from syncline.store.requests import read_job

LIST_CONNECTIONS = """
    -- Connections in id order.
    SELECT id, tenant_id, provider_slug, external_id, status, config, metadata, status_reason,
           created_at, updated_at
      FROM {schema}.connections
     WHERE ($1::text IS NULL OR tenant_id = $1) AND ($2::text IS NULL OR provider_slug = $2)
       AND ($3::text IS NULL OR status = $3) AND ($4::uuid IS NULL OR id > $4)
     ORDER BY id LIMIT $5
"""


async def list_connections(
    tx: Transaction,
    tenant_id: str | None,
    *,
    provider_slug: str | None,
    status: str | None,
    after: UUID | None,
    limit: int,
) -> list[Connection]:
    rows = await tx.fetch(LIST_CONNECTIONS, tenant_id, provider_slug, status, after, limit)
    return [read_connection(row) for row in rows]


LIST_JOBS = """
    -- Jobs, the newest first.
    SELECT id, tenant_id, provider_slug, connection_id, job_type, status, priority, attempts,
           scheduled_at, retry_after, started_at, finished_at, cursor, error, slot_at, created_at,
           updated_at
      FROM {schema}.sync_jobs
     WHERE ($1::text IS NULL OR tenant_id = $1) AND ($2::uuid IS NULL OR connection_id = $2)
       AND ($3::text IS NULL OR provider_slug = $3) AND ($4::text IS NULL OR status = $4)
       AND ($5::text IS NULL OR job_type = $5) AND ($6::uuid IS NULL OR id < $6)
     ORDER BY id DESC LIMIT $7
"""


async def list_jobs(
    tx: Transaction,
    tenant_id: str | None,
    *,
    connection_id: UUID | None,
    provider_slug: str | None,
    status: str | None,
    job_type: str | None,
    before: UUID | None,
    limit: int,
) -> list[Job]:
    filters = (tenant_id, connection_id, provider_slug, status, job_type, before)
    return [read_job(row) for row in await tx.fetch(LIST_JOBS, *filters, limit)]


LIST_SIGNALS = """
    -- Signals in id order.
    SELECT id, tenant_id, provider_slug, connection_id, job_id, kind, occurred_at, received_at,
           payload, dedupe_key
      FROM {schema}.signals
     WHERE ($1::text IS NULL OR tenant_id = $1) AND ($2::uuid IS NULL OR connection_id = $2)
       AND ($3::text IS NULL OR provider_slug = $3) AND ($4::text IS NULL OR kind = $4)
       AND ($5::uuid IS NULL OR id > $5)
     ORDER BY id LIMIT $6
"""


async def list_signals(
    tx: Transaction,
    tenant_id: str | None,
    *,
    connection_id: UUID | None,
    provider_slug: str | None,
    kind: str | None,
    after: UUID | None,
    limit: int,
) -> list[StoredSignal]:
    filters = (tenant_id, connection_id, provider_slug, kind, after)
    return [_read_signal(row) for row in await tx.fetch(LIST_SIGNALS, *filters, limit)]


def _read_signal(row: Any) -> StoredSignal:
    values = dict(row)
    values["payload"] = read_json(values["payload"])
    return StoredSignal(**values)


MEASURE_QUEUE = """
    -- Due jobs by provider, and how long the oldest has been due.
    SELECT provider_slug, count(*) AS depth,
           min(greatest(scheduled_at, retry_after)) AS oldest_due_at
      FROM {schema}.sync_jobs
     WHERE status = 'queued' AND scheduled_at <= $1
       AND (retry_after IS NULL OR retry_after <= $1)
     GROUP BY provider_slug
"""


@dataclass(frozen=True, slots=True)
class Queue:
    depth_by_provider: dict[str, int]
    oldest_due_at: datetime | None


async def measure_queue(tx: Transaction, *, now: datetime) -> Queue:
    rows = await tx.fetch(MEASURE_QUEUE, now)
    return Queue(
        {row["provider_slug"]: row["depth"] for row in rows},
        min((row["oldest_due_at"] for row in rows), default=None),
    )


COUNT_CONNECTIONS = """
    -- Connections by status.
    SELECT status, count(*) AS count FROM {schema}.connections GROUP BY status
"""

COUNT_JOBS = """
    -- Pending jobs by status, and what ended of late.
    SELECT status, count(*) AS count FROM {schema}.sync_jobs
     WHERE status IN ('queued', 'running') GROUP BY status
"""

COUNT_SIGNALS = """
    -- Signals: the planner's estimate while the table is large, exact while it is small.
    SELECT CASE WHEN reltuples > 100000 THEN reltuples::bigint END AS estimate
      FROM pg_catalog.pg_class WHERE oid = $1::text::regclass
"""

COUNT_SIGNALS_EXACTLY = """
    -- Signals, every one.
    SELECT count(*) FROM {schema}.signals
"""


@dataclass(frozen=True, slots=True)
class Summary:
    connections: dict[str, int]
    pending_jobs: dict[str, int]
    signals: int


async def summarise(tx: Transaction) -> Summary:
    """Return the counts that a status screen shows."""
    connections = await tx.fetch(COUNT_CONNECTIONS)
    pending = await tx.fetch(COUNT_JOBS)
    estimate = await tx.fetchval(COUNT_SIGNALS, tx.qualified("signals"))
    return Summary(
        connections={row["status"]: row["count"] for row in connections},
        pending_jobs={row["status"]: row["count"] for row in pending},
        signals=estimate or await tx.fetchval(COUNT_SIGNALS_EXACTLY),
    )
