"""What the engine does with jobs: enqueue, pull forward, close, and queue follow-ups."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from syncline.policy.schedule import Pull, RunPlan
from syncline.store.pool import Transaction

ENQUEUE_PLANNED = """
    -- Insert the planned jobs, except where one of the type is pending already.
    INSERT INTO {schema}.sync_jobs
           (id, tenant_id, provider_slug, connection_id, job_type, scheduled_at, slot_at)
    SELECT plan.id, plan.tenant_id, plan.provider_slug, plan.connection_id, 'incremental',
           plan.scheduled_at, plan.slot_at
      FROM unnest($1::uuid[], $2::text[], $3::text[], $4::uuid[], $5::timestamptz[],
                  $6::timestamptz[])
           AS plan (id, tenant_id, provider_slug, connection_id, scheduled_at, slot_at)
        ON CONFLICT (connection_id, job_type) WHERE status IN ('queued', 'running') DO NOTHING
"""

OF_THESE = """
    -- Which of these jobs exist; asked only if some could not be inserted.
    SELECT id FROM {schema}.sync_jobs WHERE id = ANY ($1::uuid[])
"""


async def enqueue_planned(
    tx: Transaction, plans: Sequence[RunPlan], ids: Sequence[UUID]
) -> Sequence[RunPlan]:
    """Return the plans that got their job; the others had a pending one already."""
    inserted = await tx.execute(
        ENQUEUE_PLANNED,
        ids,
        [plan.tenant_id for plan in plans],
        [plan.provider_slug for plan in plans],
        [plan.connection_id for plan in plans],
        [plan.scheduled_at for plan in plans],
        [plan.slot_at for plan in plans],
    )
    if inserted == len(plans):
        return plans
    there = {row["id"] for row in await tx.fetch(OF_THESE, ids)}
    return [plan for plan, id_ in zip(plans, ids, strict=True) if id_ in there]


PULL_FORWARD = """
    -- Move queued interval jobs forward if a new interval makes them due earlier.
    UPDATE {schema}.sync_jobs j SET scheduled_at = pull.scheduled_at, updated_at = now()
      FROM unnest($1::uuid[], $2::timestamptz[]) AS pull (connection_id, scheduled_at)
     WHERE j.connection_id = pull.connection_id AND j.job_type = 'incremental'
       AND j.status = 'queued' AND j.slot_at IS NOT NULL AND j.scheduled_at > pull.scheduled_at
 RETURNING j.connection_id
"""


async def pull_forward(tx: Transaction, pulls: Sequence[Pull]) -> list[Pull]:
    """Return the pulls that moved a job."""
    rows = await tx.fetch(
        PULL_FORWARD,
        [pull.connection_id for pull in pulls],
        [pull.scheduled_at for pull in pulls],
    )
    moved = {row["connection_id"] for row in rows}
    return [pull for pull in pulls if pull.connection_id in moved]


PULL_BACK = """
    -- Correct times of pending jobs that are too far ahead, because the clock was ahead: slots
    -- ($1) and waits ($3) of queued jobs, leases of running ones ($4). A wait that the provider
    -- asked for may be that long. A job without a slot, such as a follow-up, is found by the time
    -- of its last write. The order is that of the index of pending jobs, so only these are read.
    WITH ahead AS MATERIALIZED (
        SELECT id FROM {schema}.sync_jobs
         WHERE status IN ('queued', 'running')
           AND (status = 'queued' AND coalesce(slot_at, updated_at) > $1 AND scheduled_at > $1
                OR retry_after > $3 AND attempts > 0
                   AND (error -> 'hinted') IS DISTINCT FROM 'true'
                OR lease_expires_at > $4)
         ORDER BY connection_id, job_type LIMIT $5
           FOR UPDATE SKIP LOCKED
    )
    UPDATE {schema}.sync_jobs j
       SET scheduled_at = CASE WHEN status = 'queued' AND coalesce(slot_at, updated_at) > $1
                               THEN least(scheduled_at, $2) ELSE scheduled_at END,
           retry_after = CASE WHEN retry_after > $3 AND attempts > 0
                                   AND (error -> 'hinted') IS DISTINCT FROM 'true'
                              THEN $2 ELSE retry_after END,
           lease_expires_at = least(lease_expires_at, $4), updated_at = now()
      FROM ahead WHERE j.id = ANY (ARRAY[ahead.id])
"""

STOP_SOONER = """
    -- The same for cancelled jobs that may still run.
    UPDATE {schema}.sync_jobs SET stops_by = $1
     WHERE id = ANY (ARRAY(SELECT id FROM {schema}.sync_jobs
                            WHERE status <> 'running'
                              AND (stops_by IS NOT NULL OR lease_token IS NOT NULL)
                              AND coalesce(stops_by, lease_expires_at) > $1
                            ORDER BY connection_id LIMIT $2))
"""


@dataclass(frozen=True, slots=True)
class Latest:
    """The latest times that pending jobs can have, unless the clock was ahead."""

    slot: datetime
    retry_after: datetime
    lease_expires_at: datetime


async def pull_back(tx: Transaction, latest: Latest, *, now: datetime, limit: int) -> int:
    """Return how many jobs were brought back, at most `limit`."""
    await tx.execute(STOP_SOONER, latest.lease_expires_at, limit)
    return await tx.execute(
        PULL_BACK, latest.slot, now, latest.retry_after, latest.lease_expires_at, limit
    )


LOCK_FREE = """
    -- Lock those of the jobs that no other transaction holds.
    SELECT id FROM {schema}.sync_jobs WHERE id = ANY ($1::uuid[])
     ORDER BY id
       FOR NO KEY UPDATE SKIP LOCKED
"""


async def lock_free(tx: Transaction, ids: Sequence[UUID]) -> set[UUID]:
    """Lock the jobs that no other transaction holds; return the others."""
    locked = {row["id"] for row in await tx.fetch(LOCK_FREE, ids)}
    if len(locked) == len(ids):
        return set()
    existing = {row["id"] for row in await tx.fetch(OF_THESE, ids)}
    return existing - locked


CLOSE = """
    -- Write the outcomes of attempts, for the jobs that still run under the presented token. A job
    -- that goes back to the queue takes over the rerun that was requested while it ran. A released
    -- job keeps the error of the failure before. One that waits without a new error was put off.
    -- As everywhere below, single jobs are named by `= ANY (ARRAY[...])`, which can be neither
    -- hashed nor merged: either would read all jobs. The status is compared because plain SQL that
    -- cancels a job may leave the lease. It is compared in a CASE, because a planner that knows few
    -- running jobs would start from those, and read all. A job that ran was due; a later time was
    -- written while the clock was ahead.
    UPDATE {schema}.sync_jobs j
       SET status = closing.status, scheduled_at = least(j.scheduled_at, now()),
           attempts = closing.attempts, lapses = closing.lapses,
           retry_after = closing.retry_after, finished_at = closing.finished_at,
           deferred_until = CASE WHEN closing.error IS NULL THEN closing.retry_after END,
           error = CASE WHEN closing.status = 'succeeded' THEN NULL
                        ELSE coalesce(closing.error, j.error) END,
           counts_as_last = closing.counts_as_last, brought = closing.brought,
           lease_token = NULL, lease_expires_at = NULL, updated_at = now(),
           priority = CASE WHEN closing.status = 'queued'
                           THEN greatest(j.priority, j.again_priority) ELSE j.priority END,
           cursor = CASE WHEN closing.status = 'queued'
                         THEN coalesce(j.again_cursor, j.cursor) ELSE j.cursor END,
           again_priority = CASE WHEN closing.status = 'queued' THEN NULL
                                 ELSE j.again_priority END,
           again_cursor = CASE WHEN closing.status = 'queued' THEN NULL ELSE j.again_cursor END
      FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::int[], $5::smallint[],
                  $6::timestamptz[], $7::timestamptz[], $8::jsonb[], $9::bool[], $10::text[])
           AS closing (id, token, status, attempts, lapses, retry_after, finished_at, error,
                       counts_as_last, brought)
     WHERE j.id = ANY (ARRAY[closing.id]) AND j.lease_token IS NOT DISTINCT FROM closing.token
       AND CASE WHEN j.status = 'running' THEN true ELSE false END
 RETURNING j.id, j.again_priority, j.again_cursor
"""


@dataclass(slots=True)
class Closing:
    """The columns that an attempt leaves on its job."""

    id: UUID
    token: UUID
    status: str
    attempts: int
    lapses: int = 0
    retry_after: datetime | None = None
    finished_at: datetime | None = None
    error: str | None = None
    counts_as_last: bool = True
    brought: str | None = None


@dataclass(frozen=True, slots=True)
class RerunRequest:
    """A rerun that was requested while the job ran: its priority, and the cursor to start from."""

    priority: int | None
    cursor: str | None


async def close(tx: Transaction, closings: Sequence[Closing]) -> dict[UUID, RerunRequest]:
    """Return the jobs that were still ours to close, with their rerun requests."""
    rows = await tx.fetch(
        CLOSE,
        [closing.id for closing in closings],
        [closing.token for closing in closings],
        [closing.status for closing in closings],
        [closing.attempts for closing in closings],
        [closing.lapses for closing in closings],
        [closing.retry_after for closing in closings],
        [closing.finished_at for closing in closings],
        [closing.error for closing in closings],
        [closing.counts_as_last for closing in closings],
        [closing.brought for closing in closings],
    )
    return {row["id"]: RerunRequest(row["again_priority"], row["again_cursor"]) for row in rows}


CLOSE_EMPTY = """
    -- Close jobs whose run brought nothing, if nothing unusual is to be written for them: they are
    -- still ours, no rerun was requested, and they did not end ahead of their slot. Return the
    -- others. If there are none, as nearly always, the lists are not compared (0.7 µs a job). A
    -- stream that committed a page, in this attempt or before, was not empty.
    WITH closed AS (
        UPDATE {schema}.sync_jobs j
           SET status = 'succeeded', finished_at = moment.now, lapses = 0,
               retry_after = NULL, error = NULL, counts_as_last = true,
               is_empty = coalesce(j.is_empty, true),
               lease_token = NULL, lease_expires_at = NULL, updated_at = now()
          FROM unnest($1::uuid[], $2::uuid[]) AS closing (id, token)
         CROSS JOIN (SELECT coalesce($3::timestamptz, now())) AS moment (now)
         WHERE j.id = ANY (ARRAY[closing.id])
           AND CASE WHEN j.status = 'running' THEN true ELSE false END
           AND j.lease_token IS NOT DISTINCT FROM closing.token AND j.again_priority IS NULL
           AND coalesce(j.slot_at <= moment.now, true)
     RETURNING j.id
    )
    SELECT id FROM unnest($1::uuid[]) AS given (id)
     WHERE (SELECT count(*) FROM closed) < cardinality($1::uuid[])
       AND id NOT IN (SELECT id FROM closed)
"""


CLOSE_PAGES = """
    -- The same for jobs whose run brought something, and what that was.
    WITH closed AS (
        UPDATE {schema}.sync_jobs j
           SET status = 'succeeded', finished_at = moment.now, lapses = 0,
               retry_after = NULL, error = NULL, counts_as_last = true, is_empty = false,
               brought = closing.brought,
               lease_token = NULL, lease_expires_at = NULL, updated_at = now()
          FROM unnest($1::uuid[], $2::uuid[], $4::text[])
               AS closing (id, token, brought)
         CROSS JOIN (SELECT coalesce($3::timestamptz, now())) AS moment (now)
         WHERE j.id = ANY (ARRAY[closing.id])
           AND CASE WHEN j.status = 'running' THEN true ELSE false END
           AND j.again_priority IS NULL AND j.lease_token IS NOT DISTINCT FROM closing.token
           AND coalesce(j.slot_at <= moment.now, true)
     RETURNING j.id
    )
    SELECT id FROM unnest($1::uuid[]) AS given (id)
     WHERE (SELECT count(*) FROM closed) < cardinality($1::uuid[])
       AND id NOT IN (SELECT id FROM closed)
"""


async def close_empty(
    tx: Transaction, ids: Sequence[UUID], tokens: Sequence[UUID], *, now: datetime | None
) -> set[UUID]:
    """Close jobs, at the database's now if no time is given; return those left open."""
    return {row["id"] for row in await tx.fetch(CLOSE_EMPTY, ids, tokens, now)}


async def close_pages(
    tx: Transaction,
    ids: Sequence[UUID],
    tokens: Sequence[UUID],
    brought: Sequence[str | None],
    *,
    now: datetime | None,
) -> set[UUID]:
    """Close jobs with what each brought, as JSON; return those left open."""
    return {row["id"] for row in await tx.fetch(CLOSE_PAGES, ids, tokens, now, brought)}


FORGET_CURSORS = """
    -- Let pending jobs start from the connection's cursor, which a person has just set. A full sync
    -- keeps its own cursor.
    UPDATE {schema}.sync_jobs SET cursor = NULL, again_cursor = NULL, updated_at = now()
     WHERE connection_id = $1 AND status IN ('queued', 'running') AND job_type <> 'full'
       AND (cursor IS NOT NULL OR again_cursor IS NOT NULL)
"""


async def forget_cursors(tx: Transaction, connection_id: UUID) -> int:
    return await tx.execute(FORGET_CURSORS, connection_id)


FOLLOW_UP = """
    -- Queue follow-ups. A queued job of the type and the follow-up become one; a running one gets
    -- a rerun request. For a connection that has left active the job is written as cancelled.
    INSERT INTO {schema}.sync_jobs AS j
           (id, tenant_id, provider_slug, connection_id, job_type, priority, cursor, status,
            scheduled_at, finished_at, counts_as_last, updated_at)
    SELECT next.id, next.tenant_id, next.provider_slug, next.connection_id, next.job_type,
           next.priority, next.cursor, next.status, coalesce($9::timestamptz, now()),
           CASE WHEN next.status = 'cancelled' THEN coalesce($9::timestamptz, now()) END,
           next.status <> 'cancelled', now()
      FROM unnest($1::uuid[], $2::text[], $3::text[], $4::uuid[], $5::text[], $6::smallint[],
                  $7::jsonb[], $8::text[])
           AS next (id, tenant_id, provider_slug, connection_id, job_type, priority, cursor, status)
        ON CONFLICT (connection_id, job_type) WHERE status IN ('queued', 'running') DO UPDATE
       SET cursor = CASE WHEN j.status = 'queued' THEN coalesce(excluded.cursor, j.cursor)
                         ELSE j.cursor END,
           scheduled_at = CASE WHEN j.status = 'queued'
                               THEN least(j.scheduled_at, excluded.scheduled_at)
                               ELSE j.scheduled_at END,
           priority = CASE WHEN j.status = 'queued' THEN greatest(j.priority, excluded.priority)
                           ELSE j.priority END,
           again_priority = CASE WHEN j.status = 'running'
                                 THEN greatest(j.again_priority, excluded.priority) END,
           again_cursor = CASE WHEN j.status = 'running'
                               THEN coalesce(excluded.cursor, j.again_cursor) END,
           updated_at = excluded.updated_at
"""


@dataclass(slots=True)
class FollowUp:
    id: UUID
    tenant_id: str
    provider_slug: str
    connection_id: UUID
    job_type: str
    priority: int
    cursor: str | None
    status: str


async def enqueue_follow_ups(
    tx: Transaction, follow_ups: Sequence[FollowUp], *, now: datetime | None
) -> int:
    """Return how many jobs were written; without a time the database's now counts."""
    return await tx.execute(
        FOLLOW_UP,
        [job.id for job in follow_ups],
        [job.tenant_id for job in follow_ups],
        [job.provider_slug for job in follow_ups],
        [job.connection_id for job in follow_ups],
        [job.job_type for job in follow_ups],
        [job.priority for job in follow_ups],
        [job.cursor for job in follow_ups],
        [job.status for job in follow_ups],
        now,
    )


CANCEL_QUEUED = """
    -- Cancel the queued jobs of connections that have left active. A job that never started does
    -- not count as a completion.
    UPDATE {schema}.sync_jobs
       SET status = 'cancelled', finished_at = $2, counts_as_last = started_at IS NOT NULL,
           updated_at = now()
     WHERE connection_id = ANY ($1::uuid[]) AND status = 'queued'
"""


async def cancel_queued(tx: Transaction, connection_ids: Sequence[UUID], *, now: datetime) -> int:
    return await tx.execute(CANCEL_QUEUED, connection_ids, now)
