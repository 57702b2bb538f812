"""Leases on jobs: claim due ones, renew what runs, take over what lapsed.

None of these waits for a lock; whatever is locked is somebody else's for now.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any
from uuid import UUID

from syncline.store.pool import Transaction, seconds_for

POISON_LAPSES = 2  # a job whose lease lapsed so often in a row may be what kills workers

CLAIM = """
    -- Take due jobs in order, at most one per connection (or per connection and type, $5). Those
    -- whose lease lapsed twice or more in a row are looked for apart, $4 at most, so that they
    -- never stand in front of the others. Nor is a connection's job taken while a run of it that
    -- was cancelled may go on. Without a time of its own ($2) it is the database's now.
    WITH RECURSIVE lanes (provider_slug, priority, first_at, first_id) AS (
        -- The providers and priorities that wait, found by hopping along the index, and where each
        -- begins: what is scheduled for later, or belongs to a provider nobody asked for, is never
        -- read, and the entries of jobs that were claimed before only once, even where all were
        -- due at the same instant (to do so twice took 0.4 ms more behind 50 000 of them).
        SELECT provider.slug, top.priority, top.scheduled_at, top.id
          FROM unnest($1::text[]) AS provider (slug) CROSS JOIN LATERAL (
               SELECT j.priority, j.scheduled_at, j.id FROM {schema}.sync_jobs j
                WHERE j.provider_slug = provider.slug
                  AND j.status = 'queued' AND j.retry_after IS NULL
                ORDER BY j.priority DESC, j.scheduled_at, j.id LIMIT 1) top
         UNION ALL
        SELECT lanes.provider_slug, top.priority, top.scheduled_at, top.id
          FROM lanes CROSS JOIN LATERAL (
               SELECT j.priority, j.scheduled_at, j.id FROM {schema}.sync_jobs j
                WHERE j.provider_slug = lanes.provider_slug AND j.priority < lanes.priority
                  AND j.status = 'queued' AND j.retry_after IS NULL
                ORDER BY j.priority DESC, j.scheduled_at, j.id LIMIT 1) top
    ), due AS MATERIALIZED (
        SELECT ready.* FROM lanes CROSS JOIN LATERAL (
            SELECT j.id, j.connection_id, j.job_type, j.priority, j.scheduled_at
              FROM {schema}.sync_jobs j
             WHERE j.provider_slug = lanes.provider_slug AND j.priority = lanes.priority
               AND j.status = 'queued' AND j.retry_after IS NULL AND j.lapses <= 1
               AND (j.scheduled_at, j.id) >= (lanes.first_at, lanes.first_id)
               AND j.scheduled_at <= coalesce($2::timestamptz, now())
               AND NOT EXISTS (SELECT FROM {schema}.sync_jobs r
                                WHERE r.connection_id = j.connection_id AND r.status = 'running'
                                  AND (NOT $5::bool OR r.job_type = j.job_type) OFFSET 0)
               AND NOT EXISTS (SELECT FROM {schema}.sync_jobs s
                                WHERE s.connection_id = j.connection_id
                                  AND s.status <> 'running'
                                  AND (s.stops_by IS NOT NULL OR s.lease_token IS NOT NULL)
                                  AND coalesce(s.stops_by, s.lease_expires_at)
                                      > coalesce($2::timestamptz, now())
                                  AND (NOT $5::bool OR s.job_type = j.job_type) OFFSET 0)
             ORDER BY j.scheduled_at, j.id LIMIT $3
               FOR UPDATE SKIP LOCKED) ready
         UNION ALL
        SELECT poison.* FROM (
            SELECT j.id, j.connection_id, j.job_type, j.priority, j.scheduled_at
              FROM {schema}.sync_jobs j
             WHERE j.provider_slug = ANY ($1::text[]) AND j.status = 'queued' AND j.lapses > 1
               AND greatest(j.scheduled_at, j.retry_after) <= coalesce($2::timestamptz, now())
               AND NOT EXISTS (SELECT FROM {schema}.sync_jobs r
                                WHERE r.connection_id = j.connection_id AND r.status = 'running'
                                  AND (NOT $5::bool OR r.job_type = j.job_type) OFFSET 0)
               AND NOT EXISTS (SELECT FROM {schema}.sync_jobs s
                                WHERE s.connection_id = j.connection_id
                                  AND s.status <> 'running'
                                  AND (s.stops_by IS NOT NULL OR s.lease_token IS NOT NULL)
                                  AND coalesce(s.stops_by, s.lease_expires_at)
                                      > coalesce($2::timestamptz, now())
                                  AND (NOT $5::bool OR s.job_type = j.job_type) OFFSET 0)
             ORDER BY j.priority DESC, j.scheduled_at, j.id LIMIT $4
               FOR UPDATE SKIP LOCKED) poison
    ), picked AS MATERIALIZED (
        -- Written in the order of their connections: two claimers that meet at the single-flight
        -- index then wait for each other in one direction only.
        SELECT id, connection_id, place
          FROM (SELECT id, connection_id,
                       row_number() OVER (ORDER BY priority DESC, scheduled_at, id) AS place
                  FROM (SELECT DISTINCT ON (connection_id, CASE WHEN $5::bool THEN job_type END)
                               id, connection_id, priority, scheduled_at
                          FROM due
                         ORDER BY connection_id, CASE WHEN $5::bool THEN job_type END,
                                  priority DESC, scheduled_at, id) AS eligible
                 ORDER BY priority DESC, scheduled_at, id LIMIT $3) AS first
         ORDER BY connection_id, id
    )
    UPDATE {schema}.sync_jobs j
       SET status = 'running', started_at = coalesce($2::timestamptz, now()), lease_token = $6,
           lease_expires_at = coalesce($2::timestamptz, now()) + $7::interval,
           flight = CASE WHEN $5::bool THEN j.job_type ELSE '' END, committed_pages = 0,
           updated_at = now()
           -- OFFSET 0 here and BETWEEN below, neither of which can be hashed, keep the planner
           -- from reading all connections and all jobs (31 µs a job became 18).
      FROM picked CROSS JOIN LATERAL (
           SELECT external_id, status, config, metadata, last_finished_at IS NULL AS is_first,
                  has_credentials,
                  coalesce(pg_column_size(config), 0) + coalesce(pg_column_size(metadata), 0)
                  > 2000 AS is_large  -- Postgres compresses what is more, or keeps it elsewhere
             FROM {schema}.connections WHERE id = picked.connection_id OFFSET 0) c
     WHERE j.id BETWEEN picked.id AND picked.id
 RETURNING picked.place, j.id, j.tenant_id, j.provider_slug, j.connection_id, j.job_type,
           j.priority, j.attempts, j.lapses, j.cursor, c.external_id, c.status,
           -- What is large is read by its own run: 2000 of them in one answer would never arrive.
           CASE WHEN NOT c.is_large THEN c.config END,
           CASE WHEN NOT c.is_large THEN c.metadata END,
           CASE WHEN NOT c.is_large THEN c.metadata #> '{sync,cursor}' END,
           c.is_first, c.has_credentials, c.is_large,
           -- Seconds, because times take the worker three times as long to read as all the rest.
           date_part('epoch', j.started_at - greatest(j.scheduled_at, j.retry_after, j.ready_at)),
           date_part('epoch', j.started_at - j.slot_at),
           CASE WHEN j.slot_at > j.started_at THEN j.slot_at END
"""


@dataclass(frozen=True, slots=True)
class Lease:
    """What a claim writes: a fresh token, from when it holds, where not from now on, how long."""

    token: UUID
    granted_at: datetime | None
    duration: timedelta


@dataclass(slots=True)
class Claim:
    """A job held under a lease, and the connection it is for; JSON still as text."""

    lease_token: UUID
    place: int
    id: UUID
    tenant_id: str
    provider_slug: str
    connection_id: UUID
    job_type: str
    priority: int
    attempts: int
    lapses: int
    cursor: str | None
    external_id: str
    connection_status: str
    config: str | None
    metadata: str | None
    stored_cursor: str | None  # the connection's, as this run read it or last wrote it
    is_first: bool  # the connection has no stored copy of a completion yet
    has_credentials: bool
    is_large: bool  # config, metadata and the stored cursor did not come with the claim
    seconds_due: float  # how long before its start it was
    seconds_late: float | None  # how long after its slot it started, where it has one
    slot_ahead: datetime | None  # its slot, where that is still to come
    credentials: Any = field(default=None, repr=False)  # sealed; read apart, where there are any


async def claim(
    tx: Transaction,
    providers: Sequence[str],
    *,
    limit: int,
    poison_jobs: int,
    flight_by_type: bool,
    lease: Lease,
) -> Sequence[Any]:
    """Return the claimed rows, unread: the next claim may be sent first.

    Two claimers that reach for two jobs of one connection at once are told apart by the
    single-flight index: the loser gets a `LostRace`, and its whole claim is undone.
    """
    rows: Sequence[Any] = await tx.fetch(
        CLAIM,
        providers,
        lease.granted_at,
        limit,
        poison_jobs,
        flight_by_type,
        lease.token,
        lease.duration,
    )
    return rows


MEASURE_CONNECTION = """
    -- How many bytes the reading of a connection takes; none where it has gone.
    SELECT coalesce(octet_length(config::text), 0) + coalesce(octet_length(metadata::text), 0)
      FROM {schema}.connections WHERE id = $1
"""

READ_CONNECTION = """
    -- What a claim left out of a large connection.
    SELECT config, metadata, metadata #> '{sync,cursor}' FROM {schema}.connections WHERE id = $1
"""


async def read_large(tx: Transaction, claim: Claim, *, at_most_seconds: float) -> None:
    """Complete a claim of a large connection, in the time that a slow link needs for it."""
    size = await tx.fetchval(MEASURE_CONNECTION, claim.connection_id)
    seconds = min(seconds_for(size or 0), at_most_seconds)
    row = await tx.fetchrow(READ_CONNECTION, claim.connection_id, timeout=seconds)
    if row is not None:
        claim.config, claim.metadata, claim.stored_cursor = row


END_BACKOFFS = """
    -- Let jobs whose wait is over stand in line with the fresh ones, where the claim finds them in
    -- order. To sort all of them at each claim took too long: of 100,000 that became due together
    -- after an outage 100 to 450 a second. When the wait ended is kept for the claim's delay.
    WITH ended AS MATERIALIZED (
        SELECT job.* FROM unnest($1::text[]) AS provider (slug) CROSS JOIN LATERAL (
            SELECT id, retry_after FROM {schema}.sync_jobs
             WHERE provider_slug = provider.slug AND status = 'queued'
               AND retry_after <= coalesce($2::timestamptz, now())
             ORDER BY retry_after LIMIT $3
               FOR UPDATE SKIP LOCKED) job
         LIMIT $3
    )
    UPDATE {schema}.sync_jobs j
       SET retry_after = NULL, ready_at = ended.retry_after, updated_at = now()
      FROM ended WHERE j.id = ANY (ARRAY[ended.id])
"""


async def end_backoffs(
    tx: Transaction, providers: Sequence[str], *, now: datetime | None, limit: int
) -> int:
    """Return how many jobs no longer wait."""
    return await tx.execute(END_BACKOFFS, providers, now, limit)


def read_claims(rows: Sequence[Any], token: UUID) -> list[Claim]:
    """Return the jobs of claimed rows in the order in which they are to start."""
    return [Claim(token, *row) for row in sorted(rows, key=itemgetter(0))]


def count_poison_jobs(rows: Sequence[Any]) -> int:
    """Return how many claimed rows may be what kills workers."""
    return sum(row["lapses"] >= POISON_LAPSES for row in rows)


RENEW = """
    -- Extend leases that are still held, lapsed or not. A job that somebody else is writing keeps
    -- the lease it has until the next renewal: to wait for it here could deadlock with a settle.
    WITH free AS MATERIALIZED (
        SELECT id FROM {schema}.sync_jobs
         WHERE id = ANY ($1::uuid[]) AND lease_token = ANY ($2::uuid[])
           AND CASE status WHEN 'running' THEN true ELSE false END
           FOR NO KEY UPDATE SKIP LOCKED
    ), renewed AS (
        UPDATE {schema}.sync_jobs j SET lease_expires_at = $3 FROM free WHERE j.id = free.id
    )
    SELECT id, id IN (SELECT id FROM free) AS is_renewed FROM {schema}.sync_jobs
     WHERE id = ANY ($1::uuid[]) AND lease_token = ANY ($2::uuid[])
       AND CASE status WHEN 'running' THEN true ELSE false END
"""


async def renew(
    tx: Transaction, held: Sequence[tuple[UUID, UUID]], *, expires_at: datetime
) -> dict[UUID, bool]:
    """Return the jobs, of those given with their tokens, that are still ours; was it renewed?"""
    ids, tokens = zip(*held, strict=True)
    rows = await tx.fetch(RENEW, ids, tokens, expires_at)
    return {row["id"]: row["is_renewed"] for row in rows}


CONFIRM_STOPPED = """
    -- Take note that cancelled runs have stopped, so that their connections' next jobs may start.
    -- Who cancelled one by plain SQL has left its lease. One that somebody else is writing is left
    -- until its lease would have ended.
    WITH free AS MATERIALIZED (
        SELECT id FROM {schema}.sync_jobs
         WHERE id = ANY ($1::uuid[]) AND CASE status WHEN 'running' THEN false ELSE true END
           AND coalesce(stops_token, lease_token) = ANY ($2::uuid[])
           FOR NO KEY UPDATE SKIP LOCKED
    )
    UPDATE {schema}.sync_jobs j
       SET stops_by = NULL, stops_token = NULL, lease_token = NULL, lease_expires_at = NULL
      FROM free WHERE j.id = free.id
"""


async def confirm_stopped(tx: Transaction, stopped: Sequence[tuple[UUID, UUID]]) -> int:
    """Return how many of these jobs, given with the tokens they ran under, were cancelled."""
    ids, tokens = zip(*stopped, strict=True)
    return await tx.execute(CONFIRM_STOPPED, ids, tokens)


TAKE_OVER = """
    -- Take lapsed leases away from workers that no longer renew them. A running row without a
    -- lease (no worker of ours left one) is given a lease's time from its start.
    WITH lapsed AS MATERIALIZED (
        SELECT id FROM {schema}.sync_jobs
         WHERE status = 'running'
           AND coalesce(lease_expires_at <= $1, coalesce(started_at, scheduled_at) <= $2)
         ORDER BY id LIMIT $3
           FOR UPDATE SKIP LOCKED
    )
    UPDATE {schema}.sync_jobs j SET lease_token = $4, lease_expires_at = $5
      FROM lapsed JOIN {schema}.sync_jobs old ON old.id = lapsed.id
      JOIN {schema}.connections c ON c.id = old.connection_id
     WHERE j.id = lapsed.id
 RETURNING 0, j.id, j.tenant_id, j.provider_slug, j.connection_id, j.job_type, j.priority,
           j.attempts, j.lapses, j.cursor, c.external_id, c.status, NULL AS config,
           NULL AS metadata, NULL AS stored_cursor, c.last_finished_at IS NULL AS is_first,
           false AS has_credentials, false AS is_large,
           0::float8, NULL, CASE WHEN j.slot_at > $1 THEN j.slot_at END
"""


async def take_over(
    tx: Transaction, *, limit: int, token: UUID, now: datetime, duration: timedelta
) -> list[Claim]:
    """Return the jobs whose leases had lapsed, now held under ours."""
    rows = await tx.fetch(TAKE_OVER, now, now - duration, limit, token, now + duration)
    return read_claims(rows, token)
