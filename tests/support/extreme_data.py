"""The longest texts and the largest numbers that the tables allow, for pages to show."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

NOBODY = UUID(int=0)
HUGE = 123_456_789_012
WHOLE = 21_000  # connections and signals; beyond 20,000 the pages show the planner's estimate
TENANT = "T" + "enant" * 50 + "." * 4
PROVIDER = "p" + "rovider" * 14 + "s"
RIGHT_TO_LEFT = "\u0634\u0631\u0643\u0629 \u0645\u062b\u0627\u0644 " * 20
EMOJI = "🪐🧑🏽‍🚀" * 30
EXTERNAL_ID = "x" * 1024
WORD = "W" * 900  # without a space to break at

STATEMENTS = (
    # Enough rows for the planner's estimate to be shown, and then a huge estimate.
    """
    INSERT INTO {schema}.connections (id, tenant_id, provider_slug, external_id)
    SELECT gen_random_uuid(), 'many', 'github', 'bulk-' || n FROM generate_series(1, $1::int) n
    """,
    """
    INSERT INTO {schema}.signals (id, tenant_id, provider_slug, connection_id, kind, received_at)
    SELECT gen_random_uuid(), c.tenant_id, c.provider_slug, c.id, 'bulk', now() - interval '9 days'
      FROM {schema}.connections c WHERE c.tenant_id = 'many' LIMIT $1::int
    """,
)
CONNECTION = """
    INSERT INTO {schema}.connections
           (id, tenant_id, provider_slug, external_id, status, status_reason, config, metadata)
    VALUES (gen_random_uuid(), $1, $2, $3, $4, jsonb_build_object('why', $5::text, 'by', $5::text),
            jsonb_build_object('text', $5::text),
            jsonb_build_object('sync', jsonb_build_object('interval_seconds', 31536000,
                'cursor', jsonb_build_object($5::text, $5::text))))
    RETURNING id
"""
JOBS = """
    INSERT INTO {schema}.sync_jobs
           (id, tenant_id, provider_slug, connection_id, job_type, status, attempts, priority,
            scheduled_at, retry_after, started_at, finished_at, error, cursor, lease_token,
            lease_expires_at)
    SELECT gen_random_uuid(), c.tenant_id, c.provider_slug, c.id, job.type, job.status,
           2000000000, 32767, now(), job.retry_after,
           CASE WHEN job.status <> 'queued' THEN now() - interval '400 days' END,
           CASE WHEN job.status = 'failed' THEN now() END,
           jsonb_build_object('class', left($2, 200), 'message', $2::text),
           jsonb_build_object('at', $2::text),
           CASE WHEN job.status = 'running' THEN gen_random_uuid() END,
           CASE WHEN job.status = 'running' THEN now() + interval '1 day' END
      FROM {schema}.connections c
     CROSS JOIN (VALUES ('full', 'failed', NULL), ('incremental', 'queued', now() + interval '9 d'),
                        ('webhook', 'running', NULL)) AS job (type, status, retry_after)
     WHERE c.id = ANY ($1::uuid[])
"""
SIGNALS = """
    INSERT INTO {schema}.signals
           (id, tenant_id, provider_slug, connection_id, job_id, kind, payload, dedupe_key)
    SELECT gen_random_uuid(), j.tenant_id, j.provider_slug, j.connection_id, j.id, left($2, 255),
           jsonb_build_object($2::text, $2::text), j.id || left($2, 500)
      FROM {schema}.sync_jobs j WHERE j.connection_id = ANY ($1::uuid[])
"""
ATTEMPTS = """
    INSERT INTO {schema}.job_attempts (job_id, ended_at, id, tenant_id, connection_id, worker,
           milliseconds, error, trace, calls, call_count, signals)
    SELECT j.id, now(), gen_random_uuid(), j.tenant_id, j.connection_id, left($2, 300), $3,
           j.error, $2, jsonb_build_array(jsonb_build_object('method', 'PROPFIND', 'status', 503,
               'url', 'https://api.example/' || $2::text, 'milliseconds', 86400000)),
           2147483647, 2147483647
      FROM {schema}.sync_jobs j WHERE j.connection_id = ANY ($1::uuid[]) AND j.status = 'failed'
"""
FIGURES = """
    INSERT INTO {schema}.figures
           (span, provider_slug, starts_at, outcomes, signals, durations, delays, backlog)
    SELECT span, $1, date_trunc(span, now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC',
           jsonb_build_object('succeeded', $2::bigint, left($3, 60), $2::bigint,
                              'RateLimited', $2::bigint),
           $2, '{16,2000000000}', '{14,2000000000}', $2
      FROM unnest(ARRAY['minute', 'hour', 'day']) AS span
"""
REST = (
    """
    INSERT INTO {schema}.gates (provider_slug, paused_at, paused_because)
    SELECT $1, now(), left($2, 900) WHERE $3 <> ''
    """,
    """
    INSERT INTO {schema}.caps (tenant_id, provider_slug, max_running)
    SELECT $3, $1, 1000000 WHERE $2 <> ''
    """,
    """
    INSERT INTO {schema}.budgets (scope, source, calls, per_seconds, providers)
    SELECT left($2, 200), 'operator', 1000000000, 2678400, ARRAY[$1::text] WHERE $3 <> ''
    """,
    """
    INSERT INTO {schema}.tenant_shares
           (tenant_id, weight, heavy_until, heavy_due, heavy_since, heavy_others)
    SELECT $3, 1000, now() + interval '1 day', 2147483647, now(), 2147483647
     WHERE $1 <> '' AND $2 <> ''
    """,
    """
    INSERT INTO {schema}.audit (id, acted_at, actor_kind, actor, address, action, tenant_id,
           provider_slug, subject, count, before, after)
    SELECT gen_random_uuid(), now(), 'operator', left($2, 250), left($2, 60),
           'connections.pause', $3, $1, $2, 2147483647, jsonb_build_object('status', $2::text),
           jsonb_build_object('status', $2::text)
    """,
)
ESTIMATE = """
    UPDATE pg_catalog.pg_class SET reltuples = 123456789012
     WHERE oid IN ('{schema}.connections'::regclass, '{schema}.signals'::regclass)
"""
# The planner's estimate is replaced when a table is analysed.
STILL = "ALTER TABLE {schema}.%s SET (autovacuum_enabled = false)"
WORKER = """
    INSERT INTO {schema}.workers (id, host, pid, version, roles, providers, slots, busy, stopping,
                                  started_at, beat_at)
    VALUES (gen_random_uuid(), left($1, 253), 2147483647, left($1, 60), '{scheduler,executor}',
            ARRAY[$2::text, $2 || '-2', $2 || '-3'], 2147483647, 2147483646, false,
            now() - interval '900 days', now() + interval '1 day')
"""

Sql = Callable[..., Any]


ACTION = UUID(int=1)
MUCH_DONE = """
    INSERT INTO {schema}.bulk_actions (id, target, action, filter, options, actor, expected, done,
                                       refused, refusals, refused_first, started_at)
    SELECT '00000000-0000-0000-0000-000000000001', 'connections', 'set_interval',
           jsonb_build_object('tenant_id', $1::text, 'provider_slug', $2::text), '{}', '{}',
           2000000000, 1999999999, 1234567890, jsonb_build_object($3::text, 1234567890),
           jsonb_build_array(jsonb_build_object('id', gen_random_uuid(), 'reason', $3::text)), now()
"""


@dataclass(frozen=True, slots=True)
class Subjects:
    """The rows that the pages of one thing show."""

    connection: UUID
    job: UUID
    signal: UUID
    tenant: str = TENANT
    provider: str = PROVIDER
    action: UUID = ACTION


def add(sql: Sql) -> Subjects:
    """Write the rows beside the sample data, and return those to look at."""
    for table in ("connections", "signals"):
        sql(STILL % table)
    for statement in STATEMENTS:
        sql(statement, WHOLE)
    made = [
        sql(CONNECTION, tenant, provider, external_id, status, WORD)[0]["id"]
        for tenant, provider, external_id, status in (
            (TENANT, PROVIDER, EXTERNAL_ID, "active"),
            (TENANT, PROVIDER, "needs", "needs_reauth"),
            (TENANT, PROVIDER, "broken" * 150, "error"),
            (RIGHT_TO_LEFT.strip(), "github", RIGHT_TO_LEFT, "paused"),
            (EMOJI, "github", EMOJI, "revoked"),
        )
    ]
    sql(JOBS, made, WORD)
    sql(SIGNALS, made, WORD)
    sql(ATTEMPTS, made, WORD, HUGE)
    sql(FIGURES, PROVIDER, HUGE, WORD)
    for statement in REST:
        sql(statement, PROVIDER, WORD, TENANT)
    sql(ESTIMATE)
    [job] = sql(
        "SELECT id FROM {schema}.sync_jobs WHERE connection_id = $1 AND status = 'failed'", made[0]
    )
    [signal] = sql("SELECT id FROM {schema}.signals WHERE job_id = $1", job["id"])
    sql(MUCH_DONE, TENANT, PROVIDER, WORD)
    return Subjects(made[0], job["id"], signal["id"])


def add_worker(sql: Sql) -> None:
    """Write the worker again: the heartbeats of the sample data replace all workers."""
    sql(WORKER, WORD, PROVIDER)
