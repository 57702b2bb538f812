"""Leases on jobs: claim due ones, renew what runs, take over what lapsed.

None of these waits for a lock; whatever is locked is somebody else's for now.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from syncline.store.pool import Transaction

CLAIM = """
    -- Take due jobs in order, at most one per connection (or per connection and type, $5). Those
    -- whose lease lapsed twice or more in a row are looked for apart, $4 at most, so that they
    -- never stand in front of the others. Without a time of its own ($2) it is the database's now.
    WITH RECURSIVE lanes (provider_slug, priority) AS (
        -- The providers and priorities that wait, found by hopping along the index: what is
        -- scheduled for later, or belongs to a provider nobody asked for, is never read.
        SELECT provider.slug, (SELECT max(j.priority) FROM {schema}.sync_jobs j
                                WHERE j.provider_slug = provider.slug AND j.status = 'queued'
                                  AND j.retry_after IS NULL)
          FROM unnest($1::text[]) AS provider (slug)
         UNION ALL
        SELECT lanes.provider_slug, (SELECT max(j.priority) FROM {schema}.sync_jobs j
                                      WHERE j.provider_slug = lanes.provider_slug
                                        AND j.priority < lanes.priority AND j.status = 'queued'
                                        AND j.retry_after IS NULL)
          FROM lanes WHERE lanes.priority IS NOT NULL
    ), due AS MATERIALIZED (
        SELECT ready.* FROM lanes CROSS JOIN LATERAL (
            SELECT j.id, j.connection_id, j.job_type, j.priority, j.scheduled_at
              FROM {schema}.sync_jobs j
             WHERE j.provider_slug = lanes.provider_slug AND j.priority = lanes.priority
               AND j.status = 'queued' AND j.retry_after IS NULL AND j.lapses <= 1
               AND j.scheduled_at <= coalesce($2::timestamptz, now())
               AND NOT EXISTS (SELECT FROM {schema}.sync_jobs r
                                WHERE r.connection_id = j.connection_id AND r.status = 'running'
                                  AND (NOT $5::bool OR r.job_type = j.job_type) OFFSET 0)
             ORDER BY j.scheduled_at, j.id LIMIT $3
               FOR UPDATE SKIP LOCKED) ready
         UNION ALL
        SELECT retried.* FROM unnest($1::text[]) AS provider (slug) CROSS JOIN LATERAL (
            SELECT j.id, j.connection_id, j.job_type, j.priority, j.scheduled_at
              FROM {schema}.sync_jobs j
             WHERE j.provider_slug = provider.slug AND j.status = 'queued'
               AND j.retry_after <= coalesce($2::timestamptz, now())
               AND j.scheduled_at <= coalesce($2::timestamptz, now()) AND j.lapses <= 1
               AND NOT EXISTS (SELECT FROM {schema}.sync_jobs r
                                WHERE r.connection_id = j.connection_id AND r.status = 'running'
                                  AND (NOT $5::bool OR r.job_type = j.job_type) OFFSET 0)
             ORDER BY j.priority DESC, j.scheduled_at, j.id LIMIT $3
               FOR UPDATE SKIP LOCKED) retried
         UNION ALL
        SELECT suspect.* FROM (
            SELECT j.id, j.connection_id, j.job_type, j.priority, j.scheduled_at
              FROM {schema}.sync_jobs j
             WHERE j.provider_slug = ANY ($1::text[]) AND j.status = 'queued' AND j.lapses > 1
               AND greatest(j.scheduled_at, j.retry_after) <= coalesce($2::timestamptz, now())
               AND NOT EXISTS (SELECT FROM {schema}.sync_jobs r
                                WHERE r.connection_id = j.connection_id AND r.status = 'running'
                                  AND (NOT $5::bool OR r.job_type = j.job_type) OFFSET 0)
             ORDER BY j.priority DESC, j.scheduled_at, j.id LIMIT $4
               FOR UPDATE SKIP LOCKED) suspect
    ), ranked AS MATERIALIZED (
        SELECT DISTINCT ON (connection_id, CASE WHEN $5::bool THEN job_type END)
               id, connection_id, priority, scheduled_at
          FROM due
         ORDER BY connection_id, CASE WHEN $5::bool THEN job_type END,
                  priority DESC, scheduled_at, id
    ), first AS MATERIALIZED (
        SELECT id, connection_id FROM ranked
         ORDER BY priority DESC, scheduled_at, id LIMIT $3
    ), picked AS MATERIALIZED (
        -- Written in the order of their connections: two claimers that meet at the single-flight
        -- index then wait for each other in one direction only. OFFSET 0 here and BETWEEN below,
        -- neither of which can be hashed, keep the planner from reading all connections and all
        -- jobs (31 µs a job became 18).
        SELECT first.id, c.*
          FROM first CROSS JOIN LATERAL (
               SELECT external_id, status, config, metadata, last_finished_at IS NULL AS is_first,
                      has_credentials
                 FROM {schema}.connections WHERE id = first.connection_id OFFSET 0) c
         ORDER BY first.connection_id, first.id
    )
    UPDATE {schema}.sync_jobs j
       SET status = 'running', started_at = coalesce($2::timestamptz, now()), lease_token = $6,
           lease_expires_at = coalesce($2::timestamptz, now()) + $7::interval,
           flight = CASE WHEN $5::bool THEN j.job_type ELSE '' END, updated_at = now()
      FROM picked
     WHERE j.id BETWEEN picked.id AND picked.id
 RETURNING j.id, j.tenant_id, j.provider_slug, j.connection_id, j.job_type, j.priority,
           j.attempts, j.lapses, j.slot_at, j.scheduled_at, j.retry_after, j.started_at, j.cursor,
           j.lease_token,
           picked.external_id, picked.status, picked.config, picked.metadata, picked.is_first,
           picked.has_credentials
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

    id: UUID
    tenant_id: str
    provider_slug: str
    connection_id: UUID
    job_type: str
    priority: int
    attempts: int
    lapses: int
    slot_at: datetime | None
    scheduled_at: datetime
    retry_after: datetime | None
    started_at: datetime
    cursor: str | None
    lease_token: UUID
    external_id: str
    connection_status: str
    config: str | None
    metadata: str | None
    is_first: bool  # the connection has no stored copy of a completion yet
    has_credentials: bool
    credentials: Any = field(default=None, repr=False)  # sealed; read apart, where there are any

    @property
    def due_at(self) -> datetime:
        return max(self.scheduled_at, self.retry_after or self.scheduled_at)


async def claim(
    tx: Transaction,
    providers: Sequence[str],
    *,
    limit: int,
    suspects: int,
    flight_by_type: bool,
    lease: Lease,
) -> list[Claim]:
    """Return the claimed jobs in the order in which they are to start.

    Two claimers that reach for two jobs of one connection at once are told apart by the
    single-flight index: the loser gets a `LostRace`, and its whole claim is undone.
    """
    rows = await tx.fetch(
        CLAIM,
        providers,
        lease.granted_at,
        limit,
        suspects,
        flight_by_type,
        lease.token,
        lease.duration,
    )
    claims = [Claim(*row) for row in rows]
    claims.sort(key=lambda job: (-job.priority, job.scheduled_at, job.id))
    return claims


RENEW = """
    -- Extend leases that are still held, lapsed or not. A job that somebody else is writing keeps
    -- the lease it has until the next renewal: to wait for it here could deadlock with a settle.
    WITH free AS MATERIALIZED (
        SELECT id FROM {schema}.sync_jobs
         WHERE id = ANY ($1::uuid[]) AND lease_token = ANY ($2::uuid[])
           FOR NO KEY UPDATE SKIP LOCKED
    ), renewed AS (
        UPDATE {schema}.sync_jobs j SET lease_expires_at = $3 FROM free WHERE j.id = free.id
    )
    SELECT id FROM {schema}.sync_jobs
     WHERE id = ANY ($1::uuid[]) AND lease_token = ANY ($2::uuid[])
"""


async def renew(
    tx: Transaction, held: Sequence[tuple[UUID, UUID]], *, expires_at: datetime
) -> set[UUID]:
    """Return the jobs, of those given with their tokens, that are still ours."""
    ids, tokens = zip(*held, strict=True)
    return {row["id"] for row in await tx.fetch(RENEW, ids, tokens, expires_at)}


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
 RETURNING j.id, j.tenant_id, j.provider_slug, j.connection_id, j.job_type, j.priority,
           j.attempts, j.lapses, j.slot_at, j.scheduled_at, j.retry_after, j.started_at, j.cursor,
           j.lease_token, c.external_id, c.status, NULL AS config, NULL AS metadata,
           c.last_finished_at IS NULL AS is_first, false AS has_credentials
"""


async def take_over(
    tx: Transaction, *, limit: int, token: UUID, now: datetime, duration: timedelta
) -> list[Claim]:
    """Return the jobs whose leases had lapsed, now held under ours."""
    rows = await tx.fetch(TAKE_OVER, now, now - duration, limit, token, now + duration)
    return [Claim(*row) for row in rows]
