"""Jobs whose run streams its pages: how far each has come."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from syncline.store.pool import Transaction

ADVANCE = """
    -- Store the cursors of streamed pages on jobs that still run under the presented token, each on
    -- top of the page before it, and extend their leases. Failures count from zero once the cursor
    -- has moved. A job that dies repeatedly at one place still adds them up.
    UPDATE {schema}.sync_jobs j
       SET cursor = coalesce(page.cursor, j.cursor),
           attempts = CASE WHEN coalesce(page.cursor, j.cursor) IS DISTINCT FROM j.cursor
                           THEN 0 ELSE j.attempts END,
           lapses = CASE WHEN coalesce(page.cursor, j.cursor) IS DISTINCT FROM j.cursor
                         THEN 0 ELSE j.lapses END,
           error = CASE WHEN coalesce(page.cursor, j.cursor) IS DISTINCT FROM j.cursor
                        THEN NULL ELSE j.error END,
           committed_pages = page.pages_before + 1, is_empty = false,
           lease_expires_at = moment.lease_expires_at, updated_at = now()
      FROM unnest($1::uuid[], $2::uuid[], $3::jsonb[], $4::int[])
           AS page (id, token, cursor, pages_before)
     CROSS JOIN (SELECT coalesce($5::timestamptz, now()) + $6::interval)
           AS moment (lease_expires_at)
     WHERE j.id = ANY (ARRAY[page.id]) AND j.lease_token IS NOT DISTINCT FROM page.token
       AND CASE WHEN j.status = 'running' THEN true ELSE false END
       AND j.committed_pages = page.pages_before
 RETURNING j.id, j.committed_pages, j.attempts, j.lapses
"""


@dataclass(frozen=True, slots=True)
class NewPage:
    """A streamed page, to be committed on top of the earlier pages of its attempt."""

    job_id: UUID
    token: UUID
    cursor: str | None
    pages_before: int


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a running job has come: pages of this attempt, and the failures that count."""

    committed_pages: int
    attempts: int
    lapses: int


async def advance(
    tx: Transaction, pages: Sequence[NewPage], *, now: datetime | None, lease: timedelta
) -> dict[UUID, Progress]:
    """Return the jobs that were still ours, and whose last page was the one before.

    Without a time the database's now counts.
    """
    rows = await tx.fetch(
        ADVANCE,
        [page.job_id for page in pages],
        [page.token for page in pages],
        [page.cursor for page in pages],
        [page.pages_before for page in pages],
        now,
        lease,
    )
    return {row["id"]: Progress(*row[1:]) for row in rows}


PROGRESS = """
    -- How far a job has come that still runs under the presented token.
    SELECT committed_pages, attempts, lapses FROM {schema}.sync_jobs
     WHERE id = $1 AND lease_token = $2 AND CASE WHEN status = 'running' THEN true ELSE false END
"""


async def read_progress(tx: Transaction, job_id: UUID, token: UUID) -> Progress | None:
    """Return how far the job has come; None if it is no longer ours."""
    row = await tx.fetchrow(PROGRESS, job_id, token)
    return Progress(*row) if row is not None else None
