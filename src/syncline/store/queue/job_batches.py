"""Jobs that people retry or cancel by the many."""

from uuid import UUID

from syncline.model import JobFilter
from syncline.store.pool import Transaction

NEXT_PENDING = """
    -- The next jobs that wait or run; $6 is 'queued', 'running', or 'backoff' for those in one.
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
    -- The next jobs that came to nothing, unless the connection has had another of the type since.
    SELECT j.id FROM {schema}.sync_jobs j
     WHERE j.status = $6::text AND j.status IN ('failed', 'cancelled')
       AND ($1::text IS NULL OR j.tenant_id = $1) AND ($2::text IS NULL OR j.provider_slug = $2)
       AND ($3::uuid IS NULL OR j.connection_id = $3) AND ($4::text IS NULL OR j.job_type = $4)
       AND j.id > $5
       AND NOT EXISTS (SELECT FROM {schema}.sync_jobs later
                        WHERE later.connection_id = j.connection_id
                          AND later.finished_at > j.finished_at AND later.job_type = j.job_type)
       AND NOT EXISTS (SELECT FROM {schema}.sync_jobs pending
                        WHERE pending.connection_id = j.connection_id
                          AND pending.job_type = j.job_type
                          AND pending.status IN ('queued', 'running'))
     ORDER BY j.id LIMIT $7
"""


async def next_jobs(
    tx: Transaction, which: JobFilter, state: str, *, after: UUID, limit: int
) -> list[UUID]:
    """Return the next jobs in a state, which is a status or `backoff`, in the order of ids."""
    statement = NEXT_ENDED if state in ("failed", "cancelled") else NEXT_PENDING
    wanted = (which.tenant_id, which.provider_slug, which.connection_id, which.job_type)
    rows = await tx.fetch(statement, *wanted, after, state, limit)
    return [row["id"] for row in rows]
