"""Jobs as people ask for them: trigger, cancel, make due, look."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from syncline.model import Job
from syncline.sdk.json_text import read_json
from syncline.store.pool import Transaction

TRIGGER = """
    -- Sync now: insert a job, or pull the queued one forward (its wait ends too, unless the
    -- provider asked for it), or mark the running one to be followed by exactly one more; and wake
    -- the workers. All in one statement, because somebody waits for it.
    WITH connection AS MATERIALIZED (
        SELECT id, tenant_id, provider_slug, status FROM {schema}.connections
         WHERE id = $2 AND ($3::text IS NULL OR tenant_id = $3)
           FOR NO KEY UPDATE
    ), triggered AS (
        INSERT INTO {schema}.sync_jobs AS j
               (id, tenant_id, provider_slug, connection_id, job_type, priority, cursor,
                scheduled_at)
        SELECT $1, tenant_id, provider_slug, id, $4, $5, $6, coalesce($7::timestamptz, now())
          FROM connection WHERE status = 'active'
            ON CONFLICT (connection_id, job_type) WHERE status IN ('queued', 'running') DO UPDATE
           SET scheduled_at = CASE WHEN j.status = 'queued'
                                   THEN least(j.scheduled_at, excluded.scheduled_at)
                                   ELSE j.scheduled_at END,
               priority = CASE WHEN j.status = 'queued' THEN greatest(j.priority, $5)
                               ELSE j.priority END,
               retry_after = CASE WHEN j.status = 'running' OR j.error -> 'hinted' = 'true'
                                  THEN j.retry_after END,
               again_priority = CASE WHEN j.status = 'running'
                                     THEN greatest(j.again_priority, $5) END,
               updated_at = now()
     RETURNING id, tenant_id, provider_slug, connection_id, job_type, status, priority, attempts,
               scheduled_at, retry_after, started_at, finished_at, cursor, error, slot_at,
               created_at, updated_at
    )
    SELECT connection.status AS connection_status, triggered.*,
           CASE WHEN $8::text IS NOT NULL THEN pg_notify($8, $9)::text END AS woken
      FROM connection LEFT JOIN triggered ON true
"""


@dataclass(frozen=True, slots=True)
class Request:
    """What somebody asks for: a sync of one connection, of one tenant where one is named."""

    connection_id: UUID
    tenant_id: str | None
    job_type: str
    priority: int
    cursor: str | None = None


async def trigger(
    tx: Transaction,
    request: Request,
    job_id: UUID,
    *,
    now: datetime | None,
    channel: str | None,
    sender: str,
) -> tuple[str | None, Job | None]:
    """Return the connection's status, where there is one, and the job, where that is active."""
    row = await tx.fetchrow(
        TRIGGER,
        job_id,
        request.connection_id,
        request.tenant_id,
        request.job_type,
        request.priority,
        request.cursor,
        now,
        channel,
        sender,
    )
    if row is None:
        return None, None
    values = dict(row)
    status, _ = values.pop("connection_status"), values.pop("woken")
    return status, read_job(values) if values["id"] is not None else None


CANCEL = """
    -- Cancel one pending job; a worker that runs it notices at its next renewal. Until it says that
    -- its connector has stopped, or its lease would have ended, the connection's next job waits.
    UPDATE {schema}.sync_jobs
       SET status = 'cancelled', finished_at = $2, stops_by = lease_expires_at,
           stops_token = lease_token, lease_token = NULL, lease_expires_at = NULL,
           updated_at = now()
     WHERE id = $1 AND status IN ('queued', 'running')
"""


async def cancel(tx: Transaction, job_id: UUID, *, now: datetime) -> bool:
    return await tx.execute(CANCEL, job_id, now) == 1


MAKE_DUE = """
    -- End the wait of a queued job.
    UPDATE {schema}.sync_jobs
       SET retry_after = NULL, scheduled_at = least(scheduled_at, $2), updated_at = now()
     WHERE id = $1 AND status = 'queued'
"""


async def make_due(tx: Transaction, job_id: UUID, *, now: datetime) -> bool:
    return await tx.execute(MAKE_DUE, job_id, now) == 1


GET = """
    -- One job, of one tenant where one is named.
    SELECT id, tenant_id, provider_slug, connection_id, job_type, status, priority, attempts,
           scheduled_at, retry_after, started_at, finished_at, cursor, error, slot_at, created_at,
           updated_at
      FROM {schema}.sync_jobs
     WHERE id = $1 AND ($2::text IS NULL OR tenant_id = $2)
"""


async def get(tx: Transaction, job_id: UUID, tenant_id: str | None) -> Job | None:
    row = await tx.fetchrow(GET, job_id, tenant_id)
    return read_job(row) if row is not None else None


GET_CURSOR = """
    -- A job's cursor as it is stored: read and written again, a number might become another.
    SELECT cursor FROM {schema}.sync_jobs WHERE id = $1
"""


async def get_cursor(tx: Transaction, job_id: UUID) -> str | None:
    cursor: str | None = await tx.fetchval(GET_CURSOR, job_id)
    return cursor


def read_job(row: Any) -> Job:
    values = dict(row)
    values["cursor"] = read_json(values["cursor"])
    values["error"] = read_json(values["error"])
    return Job(**values)
