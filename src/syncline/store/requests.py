"""Jobs as people ask for them: trigger, cancel, make due, look."""

from datetime import datetime
from typing import Any
from uuid import UUID

from syncline.model import Job
from syncline.sdk.jsontext import read_json
from syncline.store.jobs import FollowUp
from syncline.store.pool import Transaction

TRIGGER = """
    -- Sync now: insert a job, or pull the queued one forward (its wait ends too, unless the
    -- provider asked for it), or mark the running one to be followed by exactly one more.
    INSERT INTO {schema}.sync_jobs AS j
           (id, tenant_id, provider_slug, connection_id, job_type, priority, cursor, scheduled_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
        ON CONFLICT (connection_id, job_type) WHERE status IN ('queued', 'running') DO UPDATE
       SET scheduled_at = CASE WHEN j.status = 'queued' THEN least(j.scheduled_at, $8)
                               ELSE j.scheduled_at END,
           priority = CASE WHEN j.status = 'queued' THEN greatest(j.priority, $6)
                           ELSE j.priority END,
           retry_after = CASE WHEN j.status = 'running' OR j.error -> 'hinted' = 'true'
                              THEN j.retry_after END,
           again_priority = CASE WHEN j.status = 'running' THEN greatest(j.again_priority, $6) END,
           updated_at = now()
 RETURNING id, tenant_id, provider_slug, connection_id, job_type, status, priority, attempts,
           scheduled_at, retry_after, started_at, finished_at, cursor, error, slot_at, created_at,
           updated_at
"""


async def trigger(tx: Transaction, job: FollowUp, *, now: datetime) -> Job:
    """Return the job that will carry it out."""
    return read_job(
        await tx.fetchrow(
            TRIGGER,
            job.id,
            job.tenant_id,
            job.provider_slug,
            job.connection_id,
            job.job_type,
            job.priority,
            job.cursor,
            now,
        )
    )


CANCEL = """
    -- Cancel one pending job; a worker that runs it notices at its next renewal.
    UPDATE {schema}.sync_jobs
       SET status = 'cancelled', finished_at = $2, lease_token = NULL, lease_expires_at = NULL,
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
