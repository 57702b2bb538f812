"""Leases on jobs: claim due jobs, renew running ones, take over lapsed ones.

None of these waits for a lock: another transaction is using a locked row.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from itertools import takewhile
from operator import attrgetter
from typing import Any
from uuid import UUID

from syncline.policy.lines import FIRST_ID, Line, LineColumns, Look
from syncline.store.pool import Transaction, seconds_for

POISON_LAPSES = 2  # a job whose lease lapsed this often in a row may be what kills its workers

CLAIM = """
    -- Take due jobs in order, at most one per connection (or per connection and type, $5). Poison
    -- jobs, whose lease lapsed twice or more in a row, are found apart, $4 at most, so they never
    -- delay the others. A job waits while a cancelled run of its connection may still
    -- be going on. Without a given time ($2) the database's now counts.
    WITH lines AS MATERIALIZED (
        -- One line of jobs per provider and priority, and where each begins. The caller knows most
        -- of them ($8 to $11). In each gap between known priorities ($12 to $14) the highest
        -- unknown one is found. Jobs that are scheduled for later, or of other providers, are never
        -- read. Dead index entries of claimed jobs are read once, even if all were due at the same
        -- instant (reading them twice took 0.4 ms more behind 50 000 of them).
        SELECT gap.provider_slug, top.priority, top.scheduled_at, top.id, false AS is_known,
               clock_timestamp() AS found_at
          FROM unnest($12::text[], $13::int[], $14::int[])
               AS gap (provider_slug, below, above) CROSS JOIN LATERAL (
               SELECT j.priority, j.scheduled_at, j.id FROM {schema}.sync_jobs j
                WHERE j.provider_slug = gap.provider_slug
                  AND j.priority > gap.below AND j.priority < gap.above
                  AND j.status = 'queued' AND j.retry_after IS NULL
                ORDER BY j.priority DESC, j.scheduled_at, j.id LIMIT 1) top
         UNION ALL
        SELECT known.provider_slug, known.priority, top.scheduled_at, top.id, true,
               clock_timestamp()
          FROM unnest($8::text[], $9::smallint[], $10::timestamptz[], $11::uuid[])
               AS known (provider_slug, priority, begins_at, begins_with) LEFT JOIN LATERAL (
               SELECT j.scheduled_at, j.id FROM {schema}.sync_jobs j
                WHERE j.provider_slug = known.provider_slug AND j.priority = known.priority
                  AND j.status = 'queued' AND j.retry_after IS NULL
                  AND (j.scheduled_at, j.id) >= (known.begins_at, known.begins_with)
                ORDER BY j.scheduled_at, j.id LIMIT 1) top ON true
    ), horizon AS MATERIALIZED (
        -- Below a priority that was unknown there may be others. What is of less priority waits for
        -- the next claim, which knows this one.
        SELECT coalesce(max(priority), -32768) AS priority FROM lines WHERE NOT is_known
    ), due AS MATERIALIZED (
        SELECT ready.*, false AS comes_first FROM lines CROSS JOIN LATERAL (
            SELECT j.id, j.connection_id, j.job_type, j.priority, j.scheduled_at
              FROM {schema}.sync_jobs j
             WHERE j.provider_slug = lines.provider_slug AND j.priority = lines.priority
               AND j.status = 'queued' AND j.retry_after IS NULL AND j.lapses <= 1
               AND (j.scheduled_at, j.id) >= (lines.scheduled_at, lines.id)
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
             ORDER BY j.scheduled_at, j.id LIMIT $3::bigint - $21::bigint
               FOR UPDATE SKIP LOCKED) ready
         WHERE lines.priority >= (SELECT priority FROM horizon)
         UNION ALL
        SELECT retried.* FROM (
            -- Jobs that the caller names ($15): those that he chose by tenant, the first $21 before
            -- all others, and the first whose backoff has ended, in order.
            SELECT waited.*, ended.place <= $21 AS comes_first
              FROM unnest($15::uuid[]) WITH ORDINALITY AS ended (id, place) CROSS JOIN LATERAL (
                SELECT j.id, j.connection_id, j.job_type, j.priority, j.scheduled_at
                  FROM {schema}.sync_jobs j
                 WHERE j.id = ANY (ARRAY[ended.id]) AND j.lapses <= $17
                   AND CASE WHEN j.status = 'queued' THEN true ELSE false END
                   AND j.provider_slug = ANY ($1::text[])
                   AND j.priority >= (SELECT priority FROM horizon)
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
                   FOR UPDATE SKIP LOCKED) waited
             LIMIT $3) retried
         UNION ALL
        SELECT poison.*, false FROM (
            SELECT j.id, j.connection_id, j.job_type, j.priority, j.scheduled_at
              FROM {schema}.sync_jobs j
             WHERE j.provider_slug = ANY ($1::text[]) AND j.status = 'queued' AND j.lapses > 1
               AND j.priority >= (SELECT priority FROM horizon)
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
        SELECT id, connection_id, place, coalesce($2::timestamptz, now()) AS started_at,
               coalesce($2::timestamptz, now()) + $7::interval AS lease_expires_at
          FROM (SELECT id, connection_id, row_number() OVER (
                       ORDER BY comes_first DESC, priority DESC, scheduled_at, id) AS place
                  FROM (SELECT DISTINCT ON (connection_id, CASE WHEN $5::bool THEN job_type END)
                               id, connection_id, priority, scheduled_at, comes_first
                          FROM due
                         ORDER BY connection_id, CASE WHEN $5::bool THEN job_type END,
                                  comes_first DESC, priority DESC, scheduled_at, id) AS eligible
                 ORDER BY comes_first DESC, priority DESC, scheduled_at, id LIMIT $3) AS first
         ORDER BY connection_id, id
    ), block AS MATERIALIZED (
        -- Caps that the caller has places under ($20), which nobody drops while he fills them.
        SELECT tenant_id, provider_slug FROM {schema}.cap_blocks mine
          JOIN {schema}.caps USING (tenant_id, provider_slug, max_running)
         WHERE holder = $20 FOR UPDATE OF mine SKIP LOCKED
    ), unheld AS MATERIALIZED (
        -- Caps not locked by the caller ($18, $19) either, and paused tenants: their jobs stay.
        (SELECT tenant_id, provider_slug FROM {schema}.caps
         EXCEPT (SELECT * FROM unnest($18::text[], $19::text[]) UNION ALL SELECT * FROM block))
         UNION ALL SELECT tenant_id, '' FROM {schema}.tenant_pauses
    ), claimed AS (
        UPDATE {schema}.sync_jobs j
           SET status = 'running', started_at = picked.started_at, lease_token = $6,
               lease_expires_at = picked.lease_expires_at,
               flight = CASE WHEN $5::bool THEN j.job_type ELSE '' END, committed_pages = 0,
               is_counted = $16, updated_at = now()
               -- Neither OFFSET 0 nor the array below can be hashed, or all jobs would be read.
          FROM picked CROSS JOIN LATERAL (
               SELECT external_id, status, config, metadata, last_finished_at IS NULL AS is_first,
                      has_credentials,
                      coalesce(pg_column_size(config), 0) + coalesce(pg_column_size(metadata), 0)
                      > 2000 AS is_large  -- Postgres compresses what is more, or keeps it elsewhere
                 FROM {schema}.connections WHERE id = picked.connection_id OFFSET 0) c
         WHERE j.id = ANY (ARRAY[picked.id])
           AND (j.tenant_id, '') NOT IN (SELECT * FROM unheld)
           AND ('', j.provider_slug) NOT IN (SELECT * FROM unheld)
           AND (j.tenant_id, j.provider_slug) NOT IN (SELECT * FROM unheld)
     RETURNING j.id, j.tenant_id, j.provider_slug, j.connection_id, j.job_type, j.priority,
               j.attempts, j.lapses, j.cursor, c.external_id, c.status AS connection_status,
               c.is_first, CASE WHEN j.slot_at > j.started_at THEN j.slot_at END AS slot_ahead,
               picked.place,
               -- A large one is read by its own run: 2000 of them in one answer would never arrive.
               CASE WHEN NOT c.is_large THEN c.config END AS config,
               CASE WHEN NOT c.is_large THEN c.metadata END AS metadata,
               CASE WHEN NOT c.is_large THEN c.metadata #> '{sync,cursor}' END AS stored_cursor,
               c.has_credentials, c.is_large,
               -- Seconds, because reading timestamps takes the worker three times as long.
               date_part('epoch', j.started_at
                                  - greatest(j.scheduled_at, j.retry_after, j.ready_at))
                   AS seconds_due,
               date_part('epoch', j.started_at - j.slot_at) AS seconds_late
    )
    -- First the lines, which have no connection: where each begins, and how long it took to find
    -- (by the server's clock; under a given time, nothing takes time). What comes now may be
    -- stamped a little earlier, so no line begins later than a second ago. An empty one has no id.
    SELECT CASE WHEN lines.scheduled_at <= earlier.at THEN lines.id
                WHEN lines.scheduled_at IS NOT NULL
                THEN '00000000-0000-0000-0000-000000000000'::uuid END AS id,
           NULL AS tenant_id, lines.provider_slug, NULL AS connection_id, NULL AS job_type,
           lines.priority, NULL AS attempts, NULL AS lapses, NULL AS cursor, NULL AS external_id,
           NULL AS connection_status, NULL AS is_first,
           least(lines.scheduled_at, earlier.at) AS slot_ahead, NULL AS place, NULL AS config,
           NULL AS metadata, NULL AS stored_cursor, NULL AS has_credentials, NULL AS is_large,
           CASE WHEN $2 IS NULL THEN date_part('epoch', lines.found_at - statement_timestamp())
                ELSE 0 END AS seconds_due,
           NULL AS seconds_late
      FROM lines CROSS JOIN (
           SELECT coalesce($2::timestamptz, now()) - interval '1 second' AS at) AS earlier
     UNION ALL
    SELECT * FROM claimed
"""


@dataclass(frozen=True, slots=True)
class Lease:
    """Token, start (None means the database's now) and duration."""

    token: UUID
    granted_at: datetime | None
    duration: timedelta


@dataclass(slots=True)
class Claim:
    """A job held under a lease, and the connection it is for; JSON still as text."""

    lease_token: UUID
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
    is_first: bool  # the connection has no stored copy of a completion yet
    slot_ahead: datetime | None  # its slot, if that is still to come
    place: int = 0  # in the order of the claim; from here on, a lapsed job has only the defaults
    config: str | None = None
    metadata: str | None = None
    stored_cursor: str | None = None  # the connection's, as this run read it or last wrote it
    has_credentials: bool = False
    is_large: bool = False  # config, metadata and the stored cursor did not come with the claim
    seconds_due: float = 0  # how long it was due before it started
    seconds_late: float | None = None  # how long after its slot it started; None without a slot
    credentials: Any = field(default=None, repr=False)  # sealed, and read by a statement of its own


COLUMNS = tuple(one.name for one in fields(Claim))[1:-1]  # all but the token and the credentials


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """Which jobs to claim: of these providers, this many, and this many poison jobs among them."""

    providers: Sequence[str]
    limit: int
    poison_jobs: int
    flight_by_type: bool  # one running job per connection and type, not per connection
    lines: LineColumns
    ended: Sequence[UUID] = ()  # chosen jobs, and the first whose backoff has ended, in order
    chosen: int = 0  # so many of these come before all others
    held: Sequence[tuple[str, str]] = ()  # caps that the transaction has locked, and counted
    block: UUID | None = None  # of places that the claim fills
    most_lapses: int = POISON_LAPSES - 1  # of the jobs named by id


@dataclass(frozen=True, slots=True)
class ClaimedRows:
    """What a claim found: jobs, unread, and the lines that it looked at."""

    jobs: Sequence[Any]
    looks: Sequence[Look]


async def claim(tx: Transaction, request: ClaimRequest, lease: Lease) -> ClaimedRows:
    """Return the claimed rows, unread: the next claim may be sent before they are.

    If another one claims a job of the same connection first, the whole claim is a `LostRace`.
    """
    rows: Sequence[Any] = await tx.fetch(
        CLAIM,
        request.providers,
        lease.granted_at,
        request.limit,
        request.poison_jobs,
        request.flight_by_type,
        lease.token,
        lease.duration,
        *request.lines.known,
        *request.lines.gaps,
        request.ended,
        bool(request.held or request.block),
        request.most_lapses,
        *([key[part] for key in request.held] for part in (0, 1)),
        request.block,
        request.chosen,
    )
    lines = takewhile(lambda row: row["connection_id"] is None, rows)
    looks = [_read_look(row) for row in lines]
    return ClaimedRows(rows[len(looks) :], looks)


def _read_look(row: Any) -> Look:
    line = Line(row["provider_slug"], row["priority"], row["slot_ahead"], row["id"] or FIRST_ID)
    return Look(line, is_empty=row["id"] is None, seconds=row["seconds_due"])


def read_claims(rows: Sequence[Any], token: UUID) -> list[Claim]:
    """Return the claims, mapped by the names of their columns, in the order of their start."""
    if rows and tuple(rows[0].keys()) == COLUMNS:
        # A claim has all columns in the order of the fields. Passing them by position takes a third
        # of the time. Without this and `_fill_connection` in engine/worker/attempt.py an empty run
        # cost this process 23 µs instead of 17.
        claimed = [Claim(token, *row) for row in rows]
    else:
        claimed = [Claim(lease_token=token, **row) for row in rows]
    claimed.sort(key=attrgetter("place"))
    return claimed


MEASURE_CONNECTION = """
    -- The size of a connection's config and metadata in bytes; no row if it is gone.
    SELECT coalesce(octet_length(config::text), 0) + coalesce(octet_length(metadata::text), 0)
      FROM {schema}.connections WHERE id = $1
"""

READ_CONNECTION = """
    -- The columns of a large connection that its claim left out.
    SELECT config, metadata, metadata #> '{sync,cursor}' FROM {schema}.connections WHERE id = $1
"""


async def read_large(tx: Transaction, claim: Claim, *, at_most_seconds: float) -> None:
    """Complete a claim of a large connection, with the time that a slow link needs."""
    size = await tx.fetchval(MEASURE_CONNECTION, claim.connection_id)
    seconds = min(seconds_for(size or 0), at_most_seconds)
    row = await tx.fetchrow(READ_CONNECTION, claim.connection_id, timeout=seconds)
    if row is not None:
        claim.config, claim.metadata, claim.stored_cursor = row


RENEW = """
    -- Extend leases that are still ours, lapsed or not. A job that is locked keeps
    -- its lease as it is until the next renewal: waiting for it could deadlock with a settle.
    WITH free AS MATERIALIZED (
        SELECT id FROM {schema}.sync_jobs
         WHERE id = ANY ($1::uuid[]) AND lease_token = ANY ($2::uuid[])
           AND CASE WHEN status = 'running' THEN true ELSE false END
           FOR NO KEY UPDATE SKIP LOCKED
    ), renewed AS (
        UPDATE {schema}.sync_jobs j SET lease_expires_at = $3 FROM free WHERE j.id = free.id
    )
    SELECT id, id IN (SELECT id FROM free) AS is_renewed FROM {schema}.sync_jobs
     WHERE id = ANY ($1::uuid[]) AND lease_token = ANY ($2::uuid[])
       AND CASE WHEN status = 'running' THEN true ELSE false END
"""


async def renew(
    tx: Transaction, held: Sequence[tuple[UUID, UUID]], *, expires_at: datetime
) -> dict[UUID, bool]:
    """Take job ids with their tokens; return the jobs still ours, and whether each was renewed."""
    ids, tokens = zip(*held, strict=True)
    rows = await tx.fetch(RENEW, ids, tokens, expires_at)
    return {row["id"]: row["is_renewed"] for row in rows}


CONFIRM_STOPPED = """
    -- Note that cancelled runs have stopped, so that the next jobs of their connections may start.
    -- A job that was cancelled by plain SQL still has its lease. A row that is locked
    -- stays as it is until its lease would have ended.
    WITH free AS MATERIALIZED (
        SELECT id FROM {schema}.sync_jobs
         WHERE id = ANY ($1::uuid[]) AND CASE WHEN status = 'running' THEN false ELSE true END
           AND coalesce(stops_token, lease_token) = ANY ($2::uuid[])
           FOR NO KEY UPDATE SKIP LOCKED
    )
    UPDATE {schema}.sync_jobs j
       SET stops_by = NULL, stops_token = NULL, lease_token = NULL, lease_expires_at = NULL
      FROM free WHERE j.id = free.id
"""


async def confirm_stopped(tx: Transaction, stopped: Sequence[tuple[UUID, UUID]]) -> int:
    """Take job ids with their tokens; return how many of the jobs were cancelled."""
    ids, tokens = zip(*stopped, strict=True)
    return await tx.execute(CONFIRM_STOPPED, ids, tokens)


TAKE_OVER = """
    -- Take lapsed leases from workers that no longer renew them. A running row without a lease,
    -- which no worker of ours leaves, is taken over one lease after its start.
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
           j.attempts, j.lapses, j.cursor, c.external_id, c.status AS connection_status,
           c.last_finished_at IS NULL AS is_first,
           CASE WHEN j.slot_at > $1 THEN j.slot_at END AS slot_ahead
"""


async def take_over(tx: Transaction, lease: Lease, *, now: datetime, limit: int) -> list[Claim]:
    """Return the jobs whose leases had lapsed, now held under ours."""
    begun, ends = now - lease.duration, now + lease.duration
    rows = await tx.fetch(TAKE_OVER, now, begun, limit, lease.token, ends)
    return read_claims(rows, lease.token)
