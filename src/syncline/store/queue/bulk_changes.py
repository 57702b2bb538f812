"""Changes to many jobs and connections at once, whose connections the caller has locked."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from syncline.store.pool import Transaction

TRIGGER = """
    -- Sync many now, as one is: insert a job, or pull the queued one forward, or request one rerun
    -- after the running one. No two rows may be of one connection and type.
    WITH run AS MATERIALIZED (
        SELECT next.id, c.tenant_id, c.provider_slug, c.id AS connection_id, next.job_type,
               next.cursor
          FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::jsonb[])
               AS next (id, connection_id, job_type, cursor)
          JOIN {schema}.connections c ON c.id = next.connection_id
         WHERE c.status = 'active'
    )
    INSERT INTO {schema}.sync_jobs AS j
           (id, tenant_id, provider_slug, connection_id, job_type, priority, cursor, scheduled_at,
            updated_at)
    SELECT id, tenant_id, provider_slug, connection_id, job_type, $5, cursor,
           coalesce($6::timestamptz, now()), now()
      FROM run
        ON CONFLICT (connection_id, job_type) WHERE status IN ('queued', 'running') DO UPDATE
       SET scheduled_at = CASE WHEN j.status = 'queued'
                               THEN least(j.scheduled_at, excluded.scheduled_at)
                               ELSE j.scheduled_at END,
           priority = CASE WHEN j.status = 'queued' THEN greatest(j.priority, excluded.priority)
                           ELSE j.priority END,
           retry_after = CASE WHEN j.status = 'running' OR j.error -> 'hinted' = 'true'
                                   OR j.deferred_until = j.retry_after
                              THEN j.retry_after END,
           again_priority = CASE WHEN j.status = 'running'
                                 THEN greatest(j.again_priority, excluded.priority) END,
           updated_at = excluded.updated_at
"""

HURRY = """
    -- Let adaptive cadences of these connections begin again at their shortest interval.
    UPDATE {schema}.connections c
       SET metadata = c.metadata #- '{sync,effective_interval_seconds}',
           look_at = '1970-01-01 00:00:00+00'
     WHERE c.id = ANY ($1::uuid[]) AND c.status = 'active'
       AND c.metadata #> '{sync,adaptive}' IS NOT NULL
"""


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run to be made: of which connection and type, and where it starts."""

    id: UUID
    connection_id: UUID
    job_type: str
    cursor: str | None = None


async def trigger(
    tx: Transaction, runs: Sequence[NewRun], *, priority: int, now: datetime | None
) -> int:
    """Return how many jobs were written; without a time the database's now counts."""
    ids = [run.connection_id for run in runs]
    await tx.execute(HURRY, ids)
    return await tx.execute(
        TRIGGER,
        [run.id for run in runs],
        ids,
        [run.job_type for run in runs],
        [run.cursor for run in runs],
        priority,
        now,
    )


READ_JOBS = """
    -- Jobs that are to be retried or cancelled, each with its connection's status, and whether a
    -- later job of the same type follows one that ended. A later one that was pruned left its time
    -- on the connection.
    SELECT j.id, j.tenant_id, j.connection_id, j.job_type, j.status, j.cursor,
           c.status AS connection_status,
           j.finished_at IS NOT NULL AND (
               EXISTS (SELECT FROM {schema}.sync_jobs later
                        WHERE later.connection_id = j.connection_id
                          AND later.finished_at > j.finished_at AND later.job_type = j.job_type)
               OR j.job_type = 'incremental' AND coalesce(c.last_finished_at > j.finished_at, false)
               OR EXISTS (SELECT FROM {schema}.sync_jobs pending
                           WHERE pending.connection_id = j.connection_id
                             AND pending.job_type = j.job_type
                             AND pending.status IN ('queued', 'running'))) AS is_followed
      FROM unnest($1::uuid[]) WITH ORDINALITY AS given (id, place)
      JOIN {schema}.sync_jobs j ON j.id = given.id
      JOIN {schema}.connections c ON c.id = j.connection_id
     ORDER BY given.place
"""

CONNECTIONS_OF = """
    -- The connections of these jobs.
    SELECT DISTINCT connection_id FROM {schema}.sync_jobs WHERE id = ANY ($1::uuid[])
"""


@dataclass(frozen=True, slots=True)
class FoundJob:
    id: UUID
    tenant_id: str
    connection_id: UUID
    job_type: str
    status: str
    cursor: str | None
    connection_status: str
    is_followed: bool


async def read_jobs(tx: Transaction, ids: Sequence[UUID]) -> list[FoundJob]:
    return [FoundJob(*row.values()) for row in await tx.fetch(READ_JOBS, ids)]


async def connections_of(tx: Transaction, ids: Sequence[UUID]) -> list[UUID]:
    return [row["connection_id"] for row in await tx.fetch(CONNECTIONS_OF, ids)]


MAKE_DUE = """
    -- Make queued jobs due.
    UPDATE {schema}.sync_jobs
       SET retry_after = NULL, scheduled_at = least(scheduled_at, $2), updated_at = now()
     WHERE id = ANY ($1::uuid[]) AND status = 'queued'
 RETURNING id
"""

CANCEL = """
    -- Cancel pending jobs, as one is.
    UPDATE {schema}.sync_jobs
       SET status = 'cancelled', finished_at = $2, stops_by = lease_expires_at,
           stops_token = lease_token, lease_token = NULL, lease_expires_at = NULL,
           updated_at = now()
     WHERE id = ANY ($1::uuid[]) AND status IN ('queued', 'running')
 RETURNING id
"""


async def make_due(tx: Transaction, ids: Sequence[UUID], *, now: datetime) -> set[UUID]:
    """Return the jobs that were queued."""
    return {row["id"] for row in await tx.fetch(MAKE_DUE, ids, now)}


async def cancel(tx: Transaction, ids: Sequence[UUID], *, now: datetime) -> set[UUID]:
    """Return the jobs that were pending."""
    return {row["id"] for row in await tx.fetch(CANCEL, ids, now)}


SET_INTERVAL = """
    -- Set the interval of connections.
    UPDATE {schema}.connections
       SET metadata = jsonb_set(
               jsonb_set({schema}.object_or_empty(metadata), '{sync}',
                         {schema}.object_or_empty(metadata -> 'sync')),
               '{sync,interval_seconds}', $2),
           updated_at = $3
     WHERE id = ANY ($1::uuid[])
"""

REMOVE_INTERVAL = """
    -- Remove the interval of connections, so that the default holds.
    UPDATE {schema}.connections
       SET metadata = {schema}.object_or_empty(metadata) #- '{sync,interval_seconds}',
           updated_at = $2
     WHERE id = ANY ($1::uuid[]) AND jsonb_typeof(metadata -> 'sync') = 'object'
"""


async def set_interval(
    tx: Transaction, ids: Sequence[UUID], seconds: int | None, *, now: datetime
) -> None:
    if seconds is None:
        await tx.execute(REMOVE_INTERVAL, ids, now)
    else:
        await tx.execute(SET_INTERVAL, ids, str(seconds), now)
