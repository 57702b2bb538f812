"""Pages of queued jobs by what they wait for: due, scheduled for later, in backoff."""

from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from syncline.model import Job, JobFilter, QueueState
from syncline.store.listings.jobs import read_rows
from syncline.store.pool import Transaction

EARLIEST, LATEST = datetime(1, 2, 1, tzinfo=UTC), datetime(9999, 12, 1, tzinfo=UTC)
FIRST_ID = UUID(int=0)
HIGHEST_PRIORITY = 32_767

READY = """
    -- Queued jobs that have not failed, by provider and in the order in which they are claimed.
    SELECT j.id, j.tenant_id, j.provider_slug, j.connection_id, j.job_type, j.status, j.priority,
           j.attempts, j.scheduled_at, j.retry_after, j.started_at, j.finished_at, j.cursor,
           j.error, j.slot_at, j.created_at, j.updated_at, j.brought
      FROM {schema}.sync_jobs j
     WHERE j.status = 'queued' AND j.retry_after IS NULL AND {is_wanted_job}
       AND j.provider_slug >= $16 AND j.scheduled_at BETWEEN $20 AND $21
       AND (j.provider_slug > $16 OR j.priority < $17
            OR j.priority = $17 AND (j.scheduled_at, j.id) > ($18, $19))
     ORDER BY j.provider_slug, j.priority DESC, j.scheduled_at, j.id LIMIT $22
"""

WAITING = """
    -- Queued jobs that wait for another attempt, or have just done so, by provider and time.
    SELECT j.id, j.tenant_id, j.provider_slug, j.connection_id, j.job_type, j.status, j.priority,
           j.attempts, j.scheduled_at, j.retry_after, j.started_at, j.finished_at, j.cursor,
           j.error, j.slot_at, j.created_at, j.updated_at, j.brought
      FROM {schema}.sync_jobs j
     WHERE j.status = 'queued' AND j.retry_after IS NOT NULL AND {is_wanted_job}
       AND j.provider_slug >= $16 AND j.retry_after BETWEEN $19 AND $20
       AND (j.provider_slug, j.retry_after, j.id) > ($16, $17, $18)
     ORDER BY j.provider_slug, j.retry_after, j.id LIMIT $21
"""


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """Where a page ended. Jobs that have failed come after all those that have not."""

    has_failed: bool
    provider_slug: str
    priority: int
    at: datetime
    job_id: UUID


async def read_page(
    tx: Transaction, wanted: JobFilter, *, now: datetime, after: QueuePlace | None, limit: int
) -> list[Job]:
    """Return the next jobs of every tenant in a state of the queue."""
    found: list[Job] = []
    has_failed = after is not None and after.has_failed
    if wanted.status != QueueState.BACKOFF and not has_failed:
        place = after or QueuePlace(False, "", HIGHEST_PRIORITY, EARLIEST, FIRST_ID)
        span = (now, LATEST) if wanted.status == QueueState.LATER else (EARLIEST, now)
        keys = (place.provider_slug, place.priority, place.at, place.job_id)
        found += await read_rows(tx, READY, wanted, now, *keys, *span, limit)
    if wanted.status != QueueState.LATER and len(found) < limit:
        place = after if after and has_failed else QueuePlace(True, "", 0, EARLIEST, FIRST_ID)
        span = (now, LATEST) if wanted.status == QueueState.BACKOFF else (EARLIEST, now)
        rest = limit - len(found)
        keys_of_waiting = (place.provider_slug, place.at, place.job_id)
        found += await read_rows(tx, WAITING, wanted, now, *keys_of_waiting, *span, rest)
    return found


def place_of(job: Job) -> QueuePlace:
    """Return the place of a page that ends with this job."""
    at = job.retry_after or job.scheduled_at
    return QueuePlace(job.retry_after is not None, job.provider_slug, job.priority, at, job.id)
