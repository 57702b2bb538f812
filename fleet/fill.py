"""Connections by the hundred thousand, with the jobs, signals and figures that they would have.

A few statements fill a migrated, empty database, in seconds.
"""

from collections.abc import Mapping
from typing import Any

import asyncpg
from bench.workloads.data import fill as insert

CONNECTIONS = 200_000
TENANTS = 500
INTERVAL_SECONDS = 900.0  # the engine's default
DOWN, LIMITED, FLOODING = "mailbox", "calendar", "northwind"
# The provider of every hundred connections.
PROVIDERS: Mapping[str, int] = {DOWN: 25, LIMITED: 20, "helpdesk": 25, "ledger": 20, "feed": 10}

ADD_CONNECTIONS = """
    -- One in five belongs to the tenant that will flood; of the others' tenants, the first are
    -- large and the last are small. One in fifty is not active.
    INSERT INTO syncline.connections
           (id, tenant_id, provider_slug, external_id, status, status_reason, created_at,
            updated_at, look_at, last_finished_at, metadata)
    SELECT pg_temp.ordered_id(30, n), tenant, slugs[1 + (hashint4(n) & 65535) % 100],
           tenant || '/account-' || n, status, CASE WHEN status <> 'active' THEN jsonb_build_object(
               'why', whys[1 + n / 50 % 4], 'since', now() - interval '1 hour') END,
           now() - interval '30 days', now() - interval '1 hour',
           CASE WHEN status = 'active' THEN slot ELSE timestamptz '0002-01-01 00:00+00' END,
           CASE WHEN status = 'active' THEN slot - make_interval(secs => $3::float8)
                ELSE now() - interval '1 hour' - n * interval '1 second' END,
           jsonb_build_object('sync', jsonb_build_object(
               'first_activated_at', '2026-01-01T00:00:00Z',
               'next_run_at', to_char(slot AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
               'last_jitter_seconds', 0, 'cursor', jsonb_build_object('runs', n % 40)))
      FROM generate_series(1, $1::int) n
     CROSS JOIN (SELECT array_agg(slug ORDER BY place, slug) AS slugs,
                        ARRAY['needs_reauth', 'error', 'paused', 'revoked'] AS statuses,
                        ARRAY['the grant was revoked', 'the account is gone',
                              'asked by the customer', 'the customer left'] AS whys
                   FROM unnest($4::text[], $5::int[]) AS share (slug, count)
                  CROSS JOIN LATERAL generate_series(1, share.count) AS place) AS lists
     CROSS JOIN LATERAL (
           SELECT CASE WHEN n % 5 = 0 THEN $6 ELSE 'tenant-' || lpad((1 + floor(
                  ($2::int - 1) * power(n % 9973 / 9973.0, 2)))::text, 4, '0') END AS tenant,
                  CASE WHEN n % 50 = 7 THEN statuses[1 + n / 50 % 4] ELSE 'active' END AS status,
                  now() + make_interval(secs => $3::float8 * (n * 7919::bigint % $1) / $1) AS slot
           ) AS planned
"""

ADD_RUNS = """
    -- The last two runs of each connection, in the order of time. One in three brought something;
    -- the last one of a connection that waits for a person failed.
    INSERT INTO syncline.sync_jobs
           (id, tenant_id, provider_slug, connection_id, status, scheduled_at, slot_at, started_at,
            finished_at, created_at, updated_at, attempts, error, is_empty)
    SELECT pg_temp.id_at(at - interval '2 seconds', 2 * place + earlier), tenant_id,
           provider_slug, id, CASE WHEN has_failed THEN 'failed' ELSE 'succeeded' END,
           at - interval '2 seconds', at - interval '2 seconds', at - interval '1 second', at,
           at - interval '2 seconds', at, has_failed::int,
           CASE WHEN has_failed AND status = 'error'
                THEN jsonb_build_object('class', 'Permanent', 'message', 'the account is gone',
                                        'attempt', 1, 'time', at)
                WHEN has_failed
                THEN jsonb_build_object('class', 'Unauthorized', 'message', 'the grant was revoked',
                                        'attempt', 1, 'time', at) END,
           CASE WHEN NOT has_failed THEN (place + earlier) % 3 > 0 END
      FROM (SELECT *, row_number() OVER (ORDER BY id) AS place FROM syncline.connections) c
     CROSS JOIN generate_series(0, 1) AS earlier
     CROSS JOIN LATERAL (
           SELECT last_finished_at - earlier * make_interval(secs => $1::float8) AS at,
                  earlier = 0 AND status IN ('needs_reauth', 'error') AS has_failed) AS run
     ORDER BY at
"""

ADD_WAITING = """
    -- One connection in two hundred waits for its next attempt.
    INSERT INTO syncline.sync_jobs
           (id, tenant_id, provider_slug, connection_id, attempts, scheduled_at, slot_at,
            started_at, retry_after, error)
    SELECT pg_temp.ordered_id(0, row_number() OVER (ORDER BY id)), tenant_id, provider_slug, id, 2,
           now() - interval '5 minutes', now() - interval '5 minutes', now() - interval '1 minute',
           now() + make_interval(secs => 600 + row_number() OVER (ORDER BY id)),
           jsonb_build_object('class', 'Transient', 'message', 'the provider answered 502',
                              'attempt', 2, 'time', now() - interval '1 minute')
      FROM (SELECT *, row_number() OVER (ORDER BY id) AS number FROM syncline.connections
             WHERE status = 'active') c
     WHERE number % 200 = 0
"""

ADD_SIGNALS = """
    -- One signal of each run that brought something.
    INSERT INTO syncline.signals
           (id, tenant_id, provider_slug, connection_id, job_id, kind, occurred_at, received_at,
            payload, dedupe_key)
    SELECT pg_temp.id_at(finished_at, row_number() OVER (ORDER BY id)), tenant_id, provider_slug,
           connection_id, id, 'record', finished_at - interval '1 minute', finished_at,
           jsonb_build_object('number', row_number() OVER (ORDER BY id), 'title', 'A record'),
           id::text
      FROM syncline.sync_jobs AS job WHERE is_empty = false
     ORDER BY job.id
"""

ADD_FIGURES = """
    -- The figures of two years, as such a fleet would have left them.
    INSERT INTO syncline.figures
           (span, provider_slug, starts_at, outcomes, signals, durations, delays, backlog)
    SELECT span, slug, at, jsonb_build_object('succeeded', runs, 'Transient', runs / 100),
           runs / 3, ARRAY[2, runs / 8, runs / 2, runs / 4, runs / 8],
           ARRAY[1, runs / 2, runs / 4, runs / 4], runs / 50
      FROM (VALUES ('minute', interval '1 minute', interval '48 hours'),
                   ('hour', interval '1 hour', interval '30 days'),
                   ('day', interval '1 day', interval '731 days')) AS spans (span, length, kept)
     CROSS JOIN LATERAL generate_series(date_trunc(span, now(), 'UTC') - kept,
                                        date_trunc(span, now(), 'UTC') - length, length) AS at
     CROSS JOIN unnest($3::text[], $4::int[]) AS share (slug, count)
     CROSS JOIN LATERAL (
           SELECT ceil($1 * share.count / 100.0 * extract(epoch FROM length) / $2
                       * (1 + 0.2 * sin(extract(epoch FROM at) / 13_000)))::int AS runs) AS planned
"""

REMEMBER_STARTS = """
    -- The usual rate of each provider, from the last twenty minutes.
    INSERT INTO syncline.provider_starts (provider_slug, minute, starts)
    SELECT slug, date_trunc('minute', now()) - n * interval '1 minute',
           $1 * count / 100.0 * 60 / $2::float8
      FROM unnest($3::text[], $4::int[]) AS share (slug, count)
     CROSS JOIN generate_series(1, 20) n
"""


async def fill(url: str, connections: int = CONNECTIONS) -> None:
    """Fill an empty, migrated database, as of its clock."""
    shares = (list(PROVIDERS), list(PROVIDERS.values()))
    session = await asyncpg.connect(url, command_timeout=600)
    try:
        await insert(
            session, ADD_CONNECTIONS, connections, TENANTS, INTERVAL_SECONDS, *shares, FLOODING
        )
        await insert(session, ADD_RUNS, INTERVAL_SECONDS)
        await insert(session, ADD_WAITING)
        await insert(session, ADD_SIGNALS)
        await insert(session, ADD_FIGURES, connections, INTERVAL_SECONDS, *shares)
        await insert(session, REMEMBER_STARTS, connections, INTERVAL_SECONDS, *shares)
        await session.execute("VACUUM ANALYZE")
    finally:
        await session.close()


async def rows(url: str) -> dict[str, Any]:
    """Return how many rows each of the large tables has."""
    session = await asyncpg.connect(url)
    try:
        tables = ("connections", "sync_jobs", "signals", "figures")
        return {
            table: await session.fetchval(f"SELECT count(*) FROM syncline.{table}")
            for table in tables
        }
    finally:
        await session.close()
