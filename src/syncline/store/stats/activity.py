"""What happens now."""

from datetime import datetime
from typing import Any
from uuid import UUID

from syncline.policy.stats import Activity, Attempt, LatestSignal, NextRun, RunningJob
from syncline.sdk.json_text import read_json
from syncline.store.pool import Transaction
from syncline.store.stats.counts import count_pending

LATEST_READ = 1_000
RUNNING_READ = 20_000
PREVIEW_CHARACTERS = 300

RECENT_ATTEMPTS = """
    -- The attempts that ended or started last, among the jobs made last.
    WITH latest AS MATERIALIZED (
        SELECT id, connection_id, job_type, status, attempts, started_at, finished_at, error
          FROM {schema}.sync_jobs ORDER BY id DESC LIMIT $2
    )
    SELECT c.tenant_id, c.provider_slug, c.external_id, c.id AS connection_id,
           latest.id AS job_id, latest.job_type, latest.status, latest.attempts,
           latest.started_at, latest.finished_at, latest.error
      FROM latest JOIN {schema}.connections c ON c.id = latest.connection_id
     WHERE latest.started_at IS NOT NULL
     ORDER BY coalesce(latest.finished_at, latest.started_at) DESC, latest.id DESC
     LIMIT $1
"""

NEXT_RUNS = """
    -- Queued jobs by when they are due, then connections by when the scheduler checks them. The
    -- recursions hop along the indexes: they read the first jobs of each provider and priority.
    WITH RECURSIVE heads AS (
        (SELECT provider_slug, priority FROM {schema}.sync_jobs
          WHERE status = 'queued' AND retry_after IS NULL
          ORDER BY provider_slug, priority DESC, scheduled_at, id LIMIT 1)
        UNION ALL
        SELECT next.* FROM heads CROSS JOIN LATERAL (
            SELECT * FROM (
                (SELECT provider_slug, priority FROM {schema}.sync_jobs
                  WHERE status = 'queued' AND retry_after IS NULL
                    AND provider_slug = heads.provider_slug AND priority < heads.priority
                  ORDER BY priority DESC, scheduled_at, id LIMIT 1)
                UNION ALL
                (SELECT provider_slug, priority FROM {schema}.sync_jobs
                  WHERE status = 'queued' AND retry_after IS NULL
                    AND provider_slug > heads.provider_slug
                  ORDER BY provider_slug, priority DESC, scheduled_at, id LIMIT 1)) AS either
             ORDER BY provider_slug, priority DESC LIMIT 1) next
    ), providers (slug) AS (
        (SELECT provider_slug FROM {schema}.sync_jobs
          WHERE status = 'queued' AND retry_after IS NOT NULL
          ORDER BY provider_slug, retry_after LIMIT 1)
        UNION ALL
        SELECT (SELECT j.provider_slug FROM {schema}.sync_jobs j
                 WHERE j.status = 'queued' AND j.retry_after IS NOT NULL
                   AND j.provider_slug > providers.slug
                 ORDER BY j.provider_slug, j.retry_after LIMIT 1)
          FROM providers WHERE providers.slug IS NOT NULL
    ), queued AS (
        SELECT ready.* FROM heads CROSS JOIN LATERAL (
            SELECT j.connection_id, j.scheduled_at AS due_at, j.attempts FROM {schema}.sync_jobs j
             WHERE j.status = 'queued' AND j.retry_after IS NULL
               AND j.provider_slug = heads.provider_slug AND j.priority = heads.priority
             ORDER BY j.scheduled_at, j.id LIMIT $1) ready
        UNION ALL
        SELECT waiting.* FROM providers CROSS JOIN LATERAL (
            SELECT j.connection_id, greatest(j.scheduled_at, j.retry_after), j.attempts
              FROM {schema}.sync_jobs j
             WHERE j.status = 'queued' AND j.retry_after IS NOT NULL
               AND j.provider_slug = providers.slug
             ORDER BY j.retry_after LIMIT $1) waiting
    )
    (SELECT c.tenant_id, c.provider_slug, c.external_id, c.id AS connection_id, j.due_at, j.attempts
       FROM (SELECT * FROM queued ORDER BY due_at, connection_id LIMIT $1) j
       JOIN {schema}.connections c ON c.id = j.connection_id)
    UNION ALL
    (SELECT c.tenant_id, c.provider_slug, c.external_id, c.id, greatest(c.look_at, $2), 0
       FROM (SELECT * FROM {schema}.connections WHERE status = 'active'
              ORDER BY look_at, id LIMIT $3) c
       LEFT JOIN LATERAL (SELECT j.id FROM {schema}.sync_jobs j
                           WHERE j.connection_id = c.id AND j.job_type = 'incremental'
                             AND j.status IN ('queued', 'running') LIMIT 1) pending ON true
      WHERE pending.id IS NULL
      ORDER BY c.look_at, c.id LIMIT $1)
    ORDER BY due_at, connection_id LIMIT $1
"""

LATEST_SIGNALS = """
    -- The signals stored last, each with the beginning of its payload.
    SELECT s.tenant_id, s.provider_slug, coalesce(c.external_id, '') AS external_id,
           s.connection_id, s.kind, s.occurred_at, left(s.payload::text, $2) AS preview
      FROM (SELECT * FROM {schema}.signals ORDER BY id DESC LIMIT $1) s
      LEFT JOIN {schema}.connections c ON c.id = s.connection_id
     ORDER BY s.id DESC
"""


SLOWEST = """
    -- What has been running longest.
    SELECT c.tenant_id, c.provider_slug, c.external_id, c.id AS connection_id,
           j.job_type, j.started_at, j.attempts
      FROM (SELECT * FROM (SELECT id, connection_id, job_type, started_at, attempts
                             FROM {schema}.sync_jobs WHERE status = 'running'
                            ORDER BY connection_id, flight LIMIT $2) AS bounded
             ORDER BY started_at, id LIMIT $1) j
      JOIN {schema}.connections c ON c.id = j.connection_id
     ORDER BY j.started_at, j.id
"""

WRITTEN = """
    -- Rows written since the server's statistics began: jobs made, signals stored.
    SELECT coalesce(sum(n_tup_ins) FILTER (WHERE relid = $1::text::regclass), 0)::bigint AS jobs,
           coalesce(sum(n_tup_ins) FILTER (WHERE relid = $2::text::regclass), 0)::bigint AS signals
      FROM pg_catalog.pg_stat_all_tables
     WHERE relid IN ($1::text::regclass, $2::text::regclass)
"""


async def read_activity(tx: Transaction, *, now: datetime, limit: int) -> Activity:
    """Return what happens now, with up to `limit` lines of each list."""
    written = await tx.fetchrow(WRITTEN, tx.qualified("sync_jobs"), tx.qualified("signals"))
    recent = await tx.fetch(RECENT_ATTEMPTS, limit, LATEST_READ)
    next_runs = await tx.fetch(NEXT_RUNS, limit, now, LATEST_READ)
    signals = await tx.fetch(LATEST_SIGNALS, limit, PREVIEW_CHARACTERS)
    slowest = await tx.fetch(SLOWEST, limit, RUNNING_READ)
    return Activity(
        now=now,
        pending_jobs=await count_pending(tx),
        jobs_made=written["jobs"],
        signals_stored=written["signals"],
        recent=[_attempt(row) for row in recent],
        next_runs=[NextRun(**row) for row in next_runs],
        signals=[LatestSignal(**row) for row in signals],
        slowest=[RunningJob(**row) for row in slowest],
    )


def _attempt(row: Any) -> Attempt:
    return Attempt(**{**row, "error": read_json(row["error"])})


def first_id_at(instant: datetime) -> UUID:
    """Return the lowest of the time-ordered ids that are made from an instant on."""
    return UUID(int=max(int(instant.timestamp() * 1000), 0) << 80)
