"""Pages of jobs, newest first: one statement for each index that can find them."""

from datetime import UTC, datetime
from uuid import UUID

from syncline.model import Job, JobFilter, JobStatus
from syncline.store.pool import Transaction
from syncline.store.queue.triggers import read_job

UNFINISHED = datetime(9999, 12, 1, tzinfo=UTC)  # sorts a pending job before all that finished
LAST_ID = UUID(int=2**128 - 1)
PENDING = (JobStatus.QUEUED, JobStatus.RUNNING)
UNSUCCESSFUL = (JobStatus.FAILED, JobStatus.CANCELLED)


Place = tuple[datetime | None, UUID]
"""Where a page ended: when its last job finished (None unless of one connection), and its id."""

BY_ID = """
    -- Jobs of every tenant.
    SELECT id, tenant_id, provider_slug, connection_id, job_type, status, priority, attempts,
           scheduled_at, retry_after, started_at, finished_at, cursor, error, slot_at, created_at,
           updated_at
      FROM {schema}.sync_jobs
     WHERE $1::text IS NULL AND $2::uuid IS NULL AND ($3::text IS NULL OR provider_slug = $3)
       AND ($4::text IS NULL OR status = $4) AND ($5::text IS NULL OR job_type = $5)
       AND ($6::timestamptz IS NULL OR created_at >= $6)
       AND ($7::timestamptz IS NULL OR created_at < $7)
       AND $8::timestamptz IS NULL AND id < $9
     ORDER BY id DESC LIMIT $10
"""

ENDED_OF_TENANT = """
    -- One tenant's jobs that have ended.
    SELECT id, tenant_id, provider_slug, connection_id, job_type, status, priority, attempts,
           scheduled_at, retry_after, started_at, finished_at, cursor, error, slot_at, created_at,
           updated_at
      FROM {schema}.sync_jobs
     WHERE tenant_id = $1 AND $2::uuid IS NULL AND ($3::text IS NULL OR provider_slug = $3)
       AND ($4::text IS NULL OR status = $4)
       AND coalesce(status, '') IN ('succeeded', 'completed', 'failed', 'cancelled')
       AND ($5::text IS NULL OR job_type = $5)
       AND ($6::timestamptz IS NULL OR created_at >= $6)
       AND ($7::timestamptz IS NULL OR created_at < $7)
       AND $8::timestamptz IS NULL AND id < $9
     ORDER BY id DESC LIMIT $10
"""

PENDING_OF_TENANT = """
    -- One tenant's pending jobs, found through its connections.
    SELECT j.id, j.tenant_id, j.provider_slug, j.connection_id, j.job_type, j.status, j.priority,
           j.attempts, j.scheduled_at, j.retry_after, j.started_at, j.finished_at, j.cursor,
           j.error, j.slot_at, j.created_at, j.updated_at
      FROM {schema}.connections c
     CROSS JOIN LATERAL (SELECT * FROM {schema}.sync_jobs
                          WHERE connection_id = c.id AND status IN ('queued', 'running')
                         OFFSET 0) j
     WHERE c.tenant_id = $1 AND j.tenant_id = $1 AND $2::uuid IS NULL
       AND ($3::text IS NULL OR j.provider_slug = $3)
       AND ($4::text IS NULL OR j.status = $4) AND ($5::text IS NULL OR j.job_type = $5)
       AND ($6::timestamptz IS NULL OR j.created_at >= $6)
       AND ($7::timestamptz IS NULL OR j.created_at < $7)
       AND $8::timestamptz IS NULL AND j.id < $9
     ORDER BY j.id DESC LIMIT $10
"""

UNSUCCESSFUL_BY_ID = """
    -- Failed or cancelled jobs.
    SELECT id, tenant_id, provider_slug, connection_id, job_type, status, priority, attempts,
           scheduled_at, retry_after, started_at, finished_at, cursor, error, slot_at, created_at,
           updated_at
      FROM {schema}.sync_jobs
     WHERE status = $4 AND coalesce(status, '') IN ('failed', 'cancelled')
       AND $1::text IS NULL AND $2::uuid IS NULL AND ($3::text IS NULL OR provider_slug = $3)
       AND ($5::text IS NULL OR job_type = $5)
       AND ($6::timestamptz IS NULL OR created_at >= $6)
       AND ($7::timestamptz IS NULL OR created_at < $7)
       AND $8::timestamptz IS NULL AND id < $9
     ORDER BY id DESC LIMIT $10
"""

PENDING_BY_ID = """
    -- Pending jobs: there are few, or the newest jobs are among them.
    SELECT id, tenant_id, provider_slug, connection_id, job_type, status, priority, attempts,
           scheduled_at, retry_after, started_at, finished_at, cursor, error, slot_at, created_at,
           updated_at
      FROM {schema}.sync_jobs
     WHERE status = $4 AND status IN ('queued', 'running')
       AND $1::text IS NULL AND $2::uuid IS NULL AND ($3::text IS NULL OR provider_slug = $3)
       AND ($5::text IS NULL OR job_type = $5)
       AND ($6::timestamptz IS NULL OR created_at >= $6)
       AND ($7::timestamptz IS NULL OR created_at < $7)
       AND $8::timestamptz IS NULL AND id < $9
     ORDER BY id DESC LIMIT $10
"""

BY_CONNECTION = """
    -- One connection's jobs: pending ones, then the others by when they finished.
    SELECT id, tenant_id, provider_slug, connection_id, job_type, status, priority, attempts,
           scheduled_at, retry_after, started_at, finished_at, cursor, error, slot_at, created_at,
           updated_at
      FROM {schema}.sync_jobs
     WHERE connection_id = $2 AND ($1::text IS NULL OR tenant_id = $1)
       AND ($3::text IS NULL OR provider_slug = $3)
       AND ($4::text IS NULL OR status = $4) AND ($5::text IS NULL OR job_type = $5)
       AND ($6::timestamptz IS NULL OR created_at >= $6)
       AND ($7::timestamptz IS NULL OR created_at < $7)
       AND (finished_at <= $8 OR finished_at IS NULL)
       AND (coalesce(finished_at, '9999-12-01 00:00:00+00'), id) < ($8, $9)
     ORDER BY finished_at DESC, id DESC LIMIT $10
"""


async def read_page(
    tx: Transaction, wanted: JobFilter, *, before: Place | None, limit: int
) -> list[Job]:
    """Return the next jobs, newest first."""
    is_history = wanted.connection_id is not None
    beginning = (UNFINISHED if is_history else None, LAST_ID)
    filters = (
        *(wanted.tenant_id, wanted.connection_id, wanted.provider_slug),
        *(wanted.status, wanted.job_type, wanted.since, wanted.until),
    )
    arguments = (*filters, *(before or beginning), limit)
    found = [
        read_job(row)
        for statement in _statements(wanted)
        for row in await tx.fetch(statement, *arguments)
    ]
    return sorted(found, key=lambda job: job.id, reverse=True)[:limit] if not is_history else found


def place_of(job: Job, wanted: JobFilter) -> Place:
    """Return the place of a page that ends with this job."""
    if wanted.connection_id is None:
        return None, job.id
    return job.finished_at or UNFINISHED, job.id


def _statements(wanted: JobFilter) -> tuple[str, ...]:
    """Return the statements that together find the wanted jobs."""
    is_pending, is_unsuccessful = wanted.status in PENDING, wanted.status in UNSUCCESSFUL
    if wanted.connection_id is not None:
        return (BY_CONNECTION,)
    if wanted.tenant_id is not None and wanted.status is None:
        return (PENDING_OF_TENANT, ENDED_OF_TENANT)
    if wanted.tenant_id is not None:
        return (PENDING_OF_TENANT,) if is_pending else (ENDED_OF_TENANT,)
    if is_unsuccessful:
        return (UNSUCCESSFUL_BY_ID,)
    return (PENDING_BY_ID,) if is_pending else (BY_ID,)
