"""What each provider has: connections by status, and how its recent jobs ended."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from syncline.model import ConnectionStatus
from syncline.policy.stats import Affected, Figure
from syncline.store.pool import Transaction
from syncline.store.stats.activity import first_id_at
from syncline.store.stats.counts import COUNTED_EXACTLY

JOBS_READ = 5_000
FAILURES_READ = 2_000
AFFECTED_READ = 10_000

SAMPLE_CONNECTIONS = """
    -- Connections by provider and status in some blocks of the table, always the same ones: an
    -- estimate that is read again must not jump.
    SELECT provider_slug, status, count(*) AS count
      FROM (SELECT provider_slug, status
              FROM {schema}.connections TABLESAMPLE SYSTEM ($1) REPEATABLE (0)
             LIMIT $2) AS bounded
     GROUP BY provider_slug, status
"""

COUNT_CONNECTIONS_OF_TENANT = """
    -- One tenant's connections by provider and status, up to a bound.
    SELECT provider_slug, status, count(*) AS count
      FROM (SELECT provider_slug, status FROM {schema}.connections
             WHERE tenant_id = $1 LIMIT $2) AS bounded
     GROUP BY provider_slug, status
"""


@dataclass(frozen=True, slots=True)
class ConnectionsByProvider:
    """Connections by provider and status, and the kind of figure that each count is."""

    by_provider: Mapping[str, Mapping[str, int]]
    kind: str


async def count_connections(
    tx: Transaction, tenant_id: str | None, *, total: Figure
) -> ConnectionsByProvider:
    """Return connections by provider, scaled up from a sample if `total` is large."""
    if tenant_id is not None:
        rows = await tx.fetch(COUNT_CONNECTIONS_OF_TENANT, tenant_id, COUNTED_EXACTLY)
        return ConnectionsByProvider(_by_provider(rows, 1.0), total.kind)
    is_sample = total.count > COUNTED_EXACTLY
    share = COUNTED_EXACTLY / total.count if is_sample else 1.0
    rows = await tx.fetch(SAMPLE_CONNECTIONS, 100 * share, 2 * COUNTED_EXACTLY)
    return ConnectionsByProvider(
        _by_provider(rows, 1 / share), "estimate" if is_sample else "exact"
    )


def _by_provider(rows: Any, factor: float) -> dict[str, dict[str, int]]:
    counted = {(row["provider_slug"], row["status"]): row["count"] for row in rows}
    found: dict[str, dict[str, int]] = {}
    for slug in sorted({slug for slug, _ in counted}):
        found[slug] = {
            status.value: round(counted[slug, status] * factor)
            for status in ConnectionStatus
            if (slug, status) in counted
        }
    return found


COUNT_OUTCOMES = """
    -- How one tenant's jobs ended that ended last, and those that will be retried, by provider:
    -- succeeded, or the class of the error. Before $2 empty runs are gone, and what is left would
    -- make every provider look worse than it is.
    WITH latest AS MATERIALIZED (
        (SELECT provider_slug, status, error FROM {schema}.sync_jobs
          WHERE tenant_id = $3
            AND coalesce(status, '') IN ('succeeded', 'completed', 'failed', 'cancelled')
            AND id >= $2
          ORDER BY id DESC LIMIT $1)
         UNION ALL
        (SELECT j.provider_slug, j.status, j.error
           FROM (SELECT id FROM {schema}.connections WHERE tenant_id = $3 LIMIT $1) c
          CROSS JOIN LATERAL (SELECT * FROM {schema}.sync_jobs
                               WHERE connection_id = c.id AND status IN ('queued', 'running')
                              OFFSET 0) j
          WHERE j.error IS NOT NULL)
    )
    SELECT provider_slug,
           CASE WHEN status IN ('succeeded', 'completed') THEN 'succeeded'
                ELSE left(coalesce(error ->> 'class', status), 100) END AS outcome,
           count(*) AS count
      FROM latest
     WHERE status IN ('succeeded', 'completed', 'failed') OR error IS NOT NULL
     GROUP BY 1, 2
"""


async def count_outcomes(
    tx: Transaction, tenant_id: str, *, since: datetime
) -> dict[str, dict[str, int]]:
    """Return outcomes of recent jobs by provider: `succeeded`, and failures by error class.

    Jobs count that were made from `since` on, and older ones that are still retried.
    """
    rows = await tx.fetch(COUNT_OUTCOMES, JOBS_READ, first_id_at(since), tenant_id)
    found: dict[str, dict[str, int]] = {}
    for row in rows:
        found.setdefault(row["provider_slug"], {})[row["outcome"]] = row["count"]
    return found


COUNT_AFFECTED = """
    -- How many connections of how many tenants wait for each of these providers, up to a bound:
    -- their jobs are due, or in backoff. Grouped three times, because distinct counts would sort.
    WITH of_connection AS (
        SELECT provider.slug, waiting.tenant_id, count(*) AS jobs, bool_or(is_waiting) AS is_waiting
          FROM unnest($1::text[]) AS provider (slug) CROSS JOIN LATERAL (
               (SELECT tenant_id, connection_id, true AS is_waiting FROM {schema}.sync_jobs
                 WHERE provider_slug = provider.slug AND status = 'queued'
                   AND retry_after IS NOT NULL AND ($3::text IS NULL OR tenant_id = $3)
                 ORDER BY retry_after LIMIT $2)
                UNION ALL
               (SELECT tenant_id, connection_id, scheduled_at <= $4 FROM {schema}.sync_jobs
                 WHERE provider_slug = provider.slug AND status = 'queued' AND retry_after IS NULL
                   AND ($3::text IS NULL OR tenant_id = $3)
                 ORDER BY priority DESC, scheduled_at, id LIMIT $2)) waiting
         GROUP BY provider.slug, waiting.tenant_id, waiting.connection_id
    ), of_tenant AS (
        SELECT slug, tenant_id, sum(jobs) AS jobs, count(*) FILTER (WHERE is_waiting) AS connections
          FROM of_connection GROUP BY slug, tenant_id
    )
    SELECT slug, sum(jobs) AS jobs, sum(connections)::bigint AS connections,
           count(*) FILTER (WHERE connections > 0) AS tenants
      FROM of_tenant
     GROUP BY slug
"""


async def count_affected(
    tx: Transaction, tenant_id: str | None, slugs: Sequence[str], *, now: datetime
) -> dict[str, Affected]:
    """Return who waits for these providers."""
    rows = await tx.fetch(COUNT_AFFECTED, slugs, AFFECTED_READ, tenant_id, now)
    return {
        row["slug"]: Affected(row["connections"], row["tenants"], row["jobs"] >= AFFECTED_READ)
        for row in rows
    }


COUNT_FAILED = """
    -- Jobs that failed for good, the latest up to a bound, by provider and error class.
    SELECT provider_slug, class, count(*) AS count
      FROM (SELECT provider_slug, left(coalesce(error ->> 'class', 'unknown'), 100) AS class
              FROM {schema}.sync_jobs
             WHERE status = 'failed' AND coalesce(status, '') IN ('failed', 'cancelled')
               AND id >= $1
             ORDER BY id DESC LIMIT $2) AS bounded
     GROUP BY provider_slug, class
"""

COUNT_FAILED_OF_TENANT = """
    -- The same of one tenant, among its jobs that ended last.
    SELECT provider_slug, class, count(*) AS count
      FROM (SELECT provider_slug, status, left(coalesce(error ->> 'class', 'unknown'), 100) AS class
              FROM {schema}.sync_jobs
             WHERE tenant_id = $3
               AND coalesce(status, '') IN ('succeeded', 'completed', 'failed', 'cancelled')
               AND id >= $1
             ORDER BY id DESC LIMIT $2) AS bounded
     WHERE status = 'failed'
     GROUP BY provider_slug, class
"""


async def count_failed(
    tx: Transaction, tenant_id: str | None, *, since: datetime
) -> dict[str, dict[str, int]]:
    """Return the jobs made from `since` on that failed for good, by provider and error class."""
    if tenant_id is None:
        rows = await tx.fetch(COUNT_FAILED, first_id_at(since), FAILURES_READ)
    else:
        rows = await tx.fetch(COUNT_FAILED_OF_TENANT, first_id_at(since), FAILURES_READ, tenant_id)
    found: dict[str, dict[str, int]] = {}
    for row in rows:
        found.setdefault(row["provider_slug"], {})[row["class"]] = row["count"]
    return found
