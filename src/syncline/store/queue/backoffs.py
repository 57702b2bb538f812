"""Jobs whose backoff has ended."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from syncline.store.pool import Transaction

ENDED = """
    -- The first jobs, in order, whose backoff has ended. After an outage a provider may have very
    -- many; of more than $4 those are looked at that ended first.
    SELECT ARRAY(
        SELECT job.id FROM unnest($1::text[]) AS provider (slug) CROSS JOIN LATERAL (
            SELECT id, priority, scheduled_at FROM {schema}.sync_jobs
             WHERE provider_slug = provider.slug AND status = 'queued'
               AND retry_after <= coalesce($2::timestamptz, now())
               AND scheduled_at <= coalesce($2::timestamptz, now()) AND lapses <= 1
             ORDER BY retry_after LIMIT $4) job
         ORDER BY job.priority DESC, job.scheduled_at, job.id LIMIT $3)
"""


async def ended(
    tx: Transaction, providers: Sequence[str], *, now: datetime | None, limit: int, read: int
) -> Sequence[UUID]:
    """Return the first jobs whose backoff has ended, of `read` at most that each provider has."""
    ids: Sequence[UUID] = await tx.fetchval(ENDED, providers, now, limit, read)
    return ids
