"""What people do with jobs: trigger, cancel, make due, get, and find many."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from syncline.model import Brought, Job, JobFilter
from syncline.sdk.json_text import read_json
from syncline.store.pool import Transaction

TRIGGER = """
    -- Sync now: insert a job; or pull the queued one forward, ending its wait unless the provider
    -- asked for it or could not be called; or request one rerun after the running one. An adaptive
    -- cadence begins again at its shortest interval. Then wake the workers. All in one statement,
    -- because the caller waits for it.
    WITH connection AS MATERIALIZED (
        SELECT id, tenant_id, provider_slug, status,
               metadata #> '{sync,adaptive}' IS NOT NULL AS is_adaptive
          FROM {schema}.connections
         WHERE id = $2 AND ($3::text IS NULL OR tenant_id = $3)
           FOR NO KEY UPDATE
    ), hurried AS (
        UPDATE {schema}.connections c
           SET metadata = c.metadata #- '{sync,effective_interval_seconds}',
               look_at = '1970-01-01 00:00:00+00'
          FROM connection
         WHERE c.id = connection.id AND connection.is_adaptive AND connection.status = 'active'
    ), triggered AS (
        INSERT INTO {schema}.sync_jobs AS j
               (id, tenant_id, provider_slug, connection_id, job_type, priority, cursor,
                scheduled_at, updated_at)
        SELECT $1, tenant_id, provider_slug, id, $4, $5, $6, coalesce($7::timestamptz, now()),
               now()
          FROM connection WHERE status = 'active'
            ON CONFLICT (connection_id, job_type) WHERE status IN ('queued', 'running') DO UPDATE
           SET scheduled_at = CASE WHEN j.status = 'queued'
                                   THEN least(j.scheduled_at, excluded.scheduled_at)
                                   ELSE j.scheduled_at END,
               priority = CASE WHEN j.status = 'queued' THEN greatest(j.priority, $5)
                               ELSE j.priority END,
               retry_after = CASE WHEN j.status = 'running' OR j.error -> 'hinted' = 'true'
                                       OR j.deferred_until = j.retry_after
                                  THEN j.retry_after END,
               again_priority = CASE WHEN j.status = 'running'
                                     THEN greatest(j.again_priority, $5) END,
               updated_at = excluded.updated_at
     RETURNING id, tenant_id, provider_slug, connection_id, job_type, status, priority, attempts,
               scheduled_at, retry_after, started_at, finished_at, cursor, error, slot_at,
               created_at, updated_at, brought
    )
    SELECT connection.status AS connection_status, triggered.*,
           CASE WHEN $8::text IS NOT NULL THEN pg_notify($8, $9)::text END AS woken
      FROM connection LEFT JOIN triggered ON true
"""


@dataclass(frozen=True, slots=True)
class TriggerRequest:
    """A sync of one connection, which must be the tenant's if one is named."""

    connection_id: UUID
    tenant_id: str | None
    job_type: str
    priority: int
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class Notification:
    """The channel that wakes workers, if there is one, and who sends."""

    channel: str | None
    sender: str


async def trigger(
    tx: Transaction,
    request: TriggerRequest,
    job_id: UUID,
    notification: Notification,
    *,
    now: datetime | None,
) -> tuple[str | None, Job | None]:
    """Return the connection's status, and the job if the connection is active.

    Both are None if there is no such connection.
    """
    row = await tx.fetchrow(
        TRIGGER,
        *(job_id, request.connection_id, request.tenant_id, request.job_type),
        *(request.priority, request.cursor, now),
        *(notification.channel, notification.sender),
    )
    if row is None:
        return None, None
    values = dict(row)
    status, _ = values.pop("connection_status"), values.pop("woken")
    return status, read_job(values) if values["id"] is not None else None


CANCEL = """
    -- Cancel one pending job. A worker that runs it notices at its next renewal. The connection's
    -- next job waits until that worker reports that its connector stopped, or its lease ends.
    UPDATE {schema}.sync_jobs
       SET status = 'cancelled', finished_at = $2, stops_by = lease_expires_at,
           stops_token = lease_token, lease_token = NULL, lease_expires_at = NULL,
           updated_at = now()
     WHERE id = $1 AND status IN ('queued', 'running')
"""


async def cancel(tx: Transaction, job_id: UUID, *, now: datetime) -> bool:
    return await tx.execute(CANCEL, job_id, now) == 1


MAKE_DUE = """
    -- Make a queued job due.
    UPDATE {schema}.sync_jobs
       SET retry_after = NULL, scheduled_at = least(scheduled_at, $2), updated_at = now()
     WHERE id = $1 AND status = 'queued'
"""


async def make_due(tx: Transaction, job_id: UUID, *, now: datetime) -> bool:
    return await tx.execute(MAKE_DUE, job_id, now) == 1


GET = """
    -- One job, which must be the tenant's if one is named.
    SELECT id, tenant_id, provider_slug, connection_id, job_type, status, priority, attempts,
           scheduled_at, retry_after, started_at, finished_at, cursor, error, slot_at, created_at,
           updated_at, brought
      FROM {schema}.sync_jobs
     WHERE id = $1 AND ($2::text IS NULL OR tenant_id = $2)
"""


async def get(tx: Transaction, job_id: UUID, tenant_id: str | None) -> Job | None:
    row = await tx.fetchrow(GET, job_id, tenant_id)
    return read_job(row) if row is not None else None


GET_CURSOR = """
    -- A job's cursor as stored: decoding and encoding it could change a number.
    SELECT cursor FROM {schema}.sync_jobs WHERE id = $1
"""


async def get_cursor(tx: Transaction, job_id: UUID) -> str | None:
    cursor: str | None = await tx.fetchval(GET_CURSOR, job_id)
    return cursor


NEXT_PENDING = """
    -- The next pending jobs; $6 is 'queued', 'running', or 'backoff'.
    SELECT j.id FROM {schema}.sync_jobs j
     WHERE j.status IN ('queued', 'running')
       AND ($1::text IS NULL OR j.tenant_id = $1) AND ($2::text IS NULL OR j.provider_slug = $2)
       AND ($3::uuid IS NULL OR j.connection_id = $3) AND ($4::text IS NULL OR j.job_type = $4)
       AND CASE WHEN $6::text = 'backoff' THEN j.status = 'queued' AND j.retry_after IS NOT NULL
                ELSE j.status = $6::text END
       AND j.id > $5
     ORDER BY j.id LIMIT $7
"""

NEXT_ENDED = """
    -- The next failed or cancelled jobs that no later job of the same type follows. A later one
    -- that was pruned left its time on the connection.
    SELECT j.id FROM {schema}.sync_jobs j
     WHERE j.status = $6::text AND j.status IN ('failed', 'cancelled')
       AND ($1::text IS NULL OR j.tenant_id = $1) AND ($2::text IS NULL OR j.provider_slug = $2)
       AND ($3::uuid IS NULL OR j.connection_id = $3) AND ($4::text IS NULL OR j.job_type = $4)
       AND j.id > $5
       AND NOT EXISTS (SELECT FROM {schema}.sync_jobs later
                        WHERE later.connection_id = j.connection_id
                          AND later.finished_at > j.finished_at AND later.job_type = j.job_type)
       AND NOT EXISTS (SELECT FROM {schema}.connections c
                        WHERE c.id = j.connection_id AND j.job_type = 'incremental'
                          AND c.last_finished_at > j.finished_at)
       AND NOT EXISTS (SELECT FROM {schema}.sync_jobs pending
                        WHERE pending.connection_id = j.connection_id
                          AND pending.job_type = j.job_type
                          AND pending.status IN ('queued', 'running'))
     ORDER BY j.id LIMIT $7
"""


async def next_jobs(
    tx: Transaction, which: JobFilter, state: str, *, after: UUID, limit: int
) -> list[UUID]:
    """Return the ids of the next jobs in a state, which is a status or `backoff`.

    The filter's status and times are not used.
    """
    statement = NEXT_ENDED if state in ("failed", "cancelled") else NEXT_PENDING
    filters = (which.tenant_id, which.provider_slug, which.connection_id, which.job_type)
    rows = await tx.fetch(statement, *filters, after, state, limit)
    return [row["id"] for row in rows]


def _read_brought(text: str | None) -> Brought | None:
    """Return what a run brought; None if the text says something else."""
    value = read_json(text)
    if not isinstance(value, list) or len(value) != 5:
        return None
    counts = value[:3]
    if not all(isinstance(count, int) and not isinstance(count, bool) for count in counts):
        return None
    return Brought(*value)


def read_job(row: Any) -> Job:
    values = dict(row)
    values["cursor"] = read_json(values["cursor"])
    values["error"] = read_json(values["error"])
    values["brought"] = _read_brought(values["brought"])
    return Job(**values)
