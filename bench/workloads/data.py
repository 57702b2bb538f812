"""Rows as a running engine would have left them, many at a time and by plain SQL."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench.workloads.case import PROVIDER, vacuum

INTERVAL_SECONDS = 900  # the engine's default

ID_AT = """
    -- Ids in the order of time, like the engine's own: random ones would slow every index down.
    CREATE OR REPLACE FUNCTION pg_temp.id_at(moment timestamptz, n bigint) RETURNS uuid
    LANGUAGE sql AS $$
        SELECT (lpad(to_hex((extract(epoch FROM moment) * 1000)::bigint), 12, '0')
                || '7' || substr(md5(n::text), 1, 3) || '8' || substr(md5(n::text), 4, 15))::uuid
    $$
"""

ORDERED_ID = """
    CREATE OR REPLACE FUNCTION pg_temp.ordered_id(days_ago int, n bigint) RETURNS uuid
    LANGUAGE sql AS $$
        SELECT pg_temp.id_at(now() - days_ago * interval '1 day'
                             + n / 1000 * interval '1 millisecond', n)
    $$
"""

NEW_CONNECTIONS = """
    -- Connections that never ran. Their ids are in the order of the rows, or random ($3).
    INSERT INTO syncline.connections (id, tenant_id, provider_slug, external_id)
    SELECT CASE WHEN $3::bool THEN gen_random_uuid() ELSE pg_temp.ordered_id(30, n) END,
           'tenant-' || n % 100, $2, n::text
      FROM generate_series(1, $1::int) n
"""

CONFIGURE = """
    -- Give all connections a configuration, and a cursor if there is one.
    UPDATE syncline.connections
       SET config = $1, last_finished_at = now(),
           metadata = CASE WHEN $2::jsonb IS NULL THEN metadata
                           ELSE jsonb_build_object('sync', jsonb_build_object('cursor', $2)) END
"""

USED_CONNECTIONS = """
    -- Connections that have run before, their slots spread from $3 to $4 seconds from now,
    -- except one in ten ($5), whose slot has just passed.
    INSERT INTO syncline.connections
           (id, tenant_id, provider_slug, external_id, created_at, look_at, last_finished_at,
            metadata)
    SELECT pg_temp.ordered_id(30, n), 'tenant-' || n % 100, $2, n::text, now() - interval '30 days',
           slot, slot - make_interval(secs => $6::float8),
           jsonb_build_object('sync', jsonb_build_object(
               'first_activated_at', '2026-01-01T00:00:00Z',
               'next_run_at', to_char(slot AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
               'last_jitter_seconds', n % 180, 'cursor', jsonb_build_object('since', n)))
      FROM generate_series(1, $1::int) n
     CROSS JOIN LATERAL (
           SELECT now() + make_interval(secs => CASE
                  WHEN $5::bool AND n % 10 = 0 THEN -60 * random()
                  ELSE $3::float8 + ($4::float8 - $3) * random() END) AS slot) planned
"""

LAST_JOBS = """
    -- The run that each connection finished last.
    INSERT INTO syncline.sync_jobs (id, tenant_id, provider_slug, connection_id, status,
           scheduled_at, slot_at, started_at, finished_at)
    SELECT pg_temp.ordered_id(1, row_number() OVER (ORDER BY id)), tenant_id, provider_slug, id,
           'succeeded', last_finished_at - interval '2 seconds',
           last_finished_at - interval '20 seconds', last_finished_at - interval '1 second',
           last_finished_at
      FROM syncline.connections
"""

KEPT_JOBS = """
    -- The same, of the last $1 seconds before the first slot, in the order of time: what a
    -- retention of that length leaves.
    INSERT INTO syncline.sync_jobs (id, tenant_id, provider_slug, connection_id, status,
           scheduled_at, slot_at, started_at, finished_at)
    SELECT pg_temp.id_at(last_finished_at - interval '1 minute', row_number() OVER (ORDER BY id)),
           tenant_id, provider_slug, id, 'succeeded', last_finished_at - interval '2 seconds',
           last_finished_at - interval '20 seconds', last_finished_at - interval '1 second',
           last_finished_at
      FROM syncline.connections
     WHERE last_finished_at > (SELECT max(last_finished_at) FROM syncline.connections)
                              - make_interval(secs => $1::float8)
     ORDER BY last_finished_at
"""

IN_BACKOFF = """
    -- Connections whose job waits for its next attempt.
    INSERT INTO syncline.sync_jobs (id, tenant_id, provider_slug, connection_id, attempts,
           scheduled_at, slot_at, started_at, retry_after, error)
    SELECT pg_temp.ordered_id(0, row_number() OVER (ORDER BY id)), tenant_id, provider_slug, id, 3,
           now() - interval '5 minutes', now() - interval '5 minutes', now() - interval '1 minute',
           now() + interval '30 minutes', '{"class": "RateLimited", "message": "slow down"}'
      FROM (SELECT * FROM syncline.connections WHERE look_at > now() ORDER BY id LIMIT $1) chosen
"""

FINISHED_JOBS = """
    -- Jobs of the past, spread evenly over the connections and stored in the order of time, as they
    -- came to be; stored connection by connection, they would pack the index by connection.
    INSERT INTO syncline.sync_jobs (id, tenant_id, provider_slug, connection_id, job_type, status,
           scheduled_at, started_at, finished_at)
    SELECT pg_temp.ordered_id(20, n), c.tenant_id, c.provider_slug, c.id, 'full', 'succeeded',
           past, past, past
      FROM (SELECT n, now() - interval '20 days' + n * interval '1 second' AS past,
                   1 + n % (SELECT count(*) FROM syncline.connections) AS place
              FROM generate_series(1, $1::int) n) jobs
      JOIN (SELECT *, row_number() OVER (ORDER BY id) AS place
              FROM syncline.connections) c ON c.place = jobs.place
     ORDER BY n
"""

QUEUED_JOBS = """
    -- A job for every connection, due now, or with $1 at shuffled times of the last minute.
    INSERT INTO syncline.sync_jobs (id, tenant_id, provider_slug, connection_id, scheduled_at)
    SELECT pg_temp.ordered_id(0, row_number() OVER (ORDER BY id)), tenant_id, provider_slug, id,
           CASE WHEN $1::bool THEN now() - 60 * random() * interval '1 second' ELSE now() END
      FROM syncline.connections
"""

AFTER_AN_OUTAGE = """
    -- A job for every connection, due in the course of five minutes. With $1, each has failed once,
    -- and its backoff of about five seconds has ended since.
    INSERT INTO syncline.sync_jobs (id, tenant_id, provider_slug, connection_id, attempts,
           scheduled_at, slot_at, started_at, retry_after, error)
    SELECT pg_temp.ordered_id(0, place), tenant_id, provider_slug, id, $1::bool::int, due_at,
           due_at, CASE WHEN $1 THEN due_at END,
           CASE WHEN $1 THEN due_at + (5 + 0.5 * random()) * interval '1 second' END,
           CASE WHEN $1 THEN '{"class": "Transient", "message": "it is away"}'::jsonb END
      FROM (SELECT *, now() - interval '10 minutes'
                      + interval '5 minutes' * place / count(*) OVER () AS due_at
              FROM (SELECT *, row_number() OVER (ORDER BY id) AS place
                      FROM syncline.connections) numbered) planned
"""


@dataclass(frozen=True)
class Past:
    """When connections that have run before run next, and what is left of their last runs."""

    slots: tuple[float, float]  # the next slots are spread between these, in seconds from now
    interval_seconds: float = INTERVAL_SECONDS
    some_due: bool = False  # the slot of one in ten has just passed
    kept_seconds: float | None = None  # how long finished jobs were kept; None keeps all


async def add_connections(
    session: Any, count: int, *, provider: str = PROVIDER, random_ids: bool = False
) -> None:
    """Add connections that never ran; the next tick queues a job for each."""
    await fill(session, NEW_CONNECTIONS, count, provider, random_ids)
    await vacuum(session)


async def configure_connections(
    session: Any, config: Mapping[str, Any], cursor: Mapping[str, Any] | None
) -> None:
    """Set what connectors read; the connections then count as having run before."""
    await session.execute(
        CONFIGURE, json.dumps(config), None if cursor is None else json.dumps(cursor)
    )
    await vacuum(session)


async def add_used_connections(
    session: Any, count: int, past: Past, *, in_backoff: int = 0
) -> None:
    """Add connections with a finished job each, and `in_backoff` more with a waiting job."""
    everything = (count + in_backoff, PROVIDER, *past.slots, past.some_due, past.interval_seconds)
    await fill(session, USED_CONNECTIONS, *everything)
    if past.kept_seconds is None:
        await fill(session, LAST_JOBS)
    else:
        await fill(session, KEPT_JOBS, past.kept_seconds)
    if in_backoff:
        await fill(session, IN_BACKOFF, in_backoff)
    await vacuum(session)


async def add_finished_jobs(session: Any, count: int) -> None:
    await fill(session, FINISHED_JOBS, count)
    await vacuum(session)


async def queue_jobs(session: Any, *, shuffled: bool = False) -> None:
    """Queue a job for every connection, as an application may do by plain SQL."""
    await fill(session, QUEUED_JOBS, shuffled)


async def queue_after_outage(session: Any, *, has_failed: bool) -> None:
    """Queue a job for every connection, all due by now; with `has_failed`, after a backoff."""
    await fill(session, AFTER_AN_OUTAGE, has_failed)
    await vacuum(session)


async def give_a_past(session: Any) -> None:
    """Mark every connection as having run before, as nearly all have in production."""
    await session.execute("UPDATE syncline.connections SET last_finished_at = now()")
    await vacuum(session)


async def fill(session: Any, statement: str, *arguments: Any) -> None:
    """Insert rows whose ids may be ordered by time."""
    async with session.transaction():
        await session.execute(ID_AT)
        await session.execute(ORDERED_ID)
        # The rows are consistent; checking each reference would only take time.
        await session.execute("SET LOCAL session_replication_role = replica")
        await session.execute(statement, *arguments)
