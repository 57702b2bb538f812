"""Providers as people look at them: how much there is of each, and how it fares."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from syncline.store.pool import Transaction

JOBS_LOOKED_AT = 5000

COUNT_CONNECTIONS = """
    -- Connections by provider and status, of one tenant where one is named.
    SELECT provider_slug, status, count(*) AS count FROM {schema}.connections
     WHERE ($1::text IS NULL OR tenant_id = $1)
     GROUP BY provider_slug, status
"""

COUNT_WAITING = """
    -- Jobs that wait or run, by provider: how many, and since when the oldest is due.
    SELECT provider_slug,
           count(*) FILTER (WHERE status = 'running') AS running,
           count(*) FILTER (WHERE status = 'queued' AND scheduled_at <= $2
                                  AND (retry_after IS NULL OR retry_after <= $2)) AS due,
           count(*) FILTER (WHERE status = 'queued' AND retry_after > $2) AS backoff,
           count(*) FILTER (WHERE status = 'queued' AND retry_after > $2
                                  AND error -> 'hinted' = 'true') AS rate_limited,
           min(greatest(scheduled_at, retry_after)) FILTER (
               WHERE status = 'queued' AND scheduled_at <= $2
                     AND (retry_after IS NULL OR retry_after <= $2)) AS oldest_due_at
      FROM {schema}.sync_jobs
     WHERE status IN ('queued', 'running') AND ($1::text IS NULL OR tenant_id = $1)
     GROUP BY provider_slug
"""

COUNT_RECENT = """
    -- What became of the jobs made last: outcomes by provider, failures by class.
    WITH latest AS MATERIALIZED (
        SELECT provider_slug, status, error FROM {schema}.sync_jobs ORDER BY id DESC LIMIT $1
    )
    SELECT provider_slug,
           CASE WHEN status IN ('succeeded', 'completed') THEN 'succeeded'
                ELSE left(coalesce(error ->> 'class', status), 100) END AS outcome,
           count(*) AS count
      FROM latest
     WHERE status IN ('succeeded', 'completed', 'failed') OR error IS NOT NULL
     GROUP BY 1, 2
"""

COUNT_RECENT_OF_TENANT = """
    -- The same of one tenant: jobs that ended last, and those that failed and are to be retried.
    WITH latest AS MATERIALIZED (
        (SELECT provider_slug, status, error FROM {schema}.sync_jobs
          WHERE tenant_id = $1
            AND coalesce(status, '') IN ('succeeded', 'completed', 'failed', 'cancelled')
          ORDER BY id DESC LIMIT $2)
         UNION ALL
        (SELECT provider_slug, status, error FROM {schema}.sync_jobs
          WHERE tenant_id = $1 AND status IN ('queued', 'running') AND error IS NOT NULL
          LIMIT $2)
    )
    SELECT provider_slug,
           CASE WHEN status IN ('succeeded', 'completed') THEN 'succeeded'
                ELSE left(coalesce(error ->> 'class', status), 100) END AS outcome,
           count(*) AS count
      FROM latest
     WHERE status IN ('succeeded', 'completed', 'failed') OR error IS NOT NULL
     GROUP BY 1, 2
"""


@dataclass(slots=True)
class ProviderView:
    """How one provider fares; `outcomes` are those of the jobs made last, failures by class."""

    provider_slug: str
    connections: dict[str, int] = field(default_factory=dict)
    running: int = 0
    due: int = 0
    backoff: int = 0
    rate_limited: int = 0
    oldest_due_at: datetime | None = None
    outcomes: dict[str, int] = field(default_factory=dict)


async def look(tx: Transaction, tenant_id: str | None, *, now: datetime) -> list[ProviderView]:
    """Return the providers that have connections or pending jobs, by name."""
    found: dict[str, ProviderView] = {}

    def view(slug: str) -> ProviderView:
        return found.setdefault(slug, ProviderView(slug))

    for row in await tx.fetch(COUNT_CONNECTIONS, tenant_id):
        view(row["provider_slug"]).connections[row["status"]] = row["count"]
    for row in await tx.fetch(COUNT_WAITING, tenant_id, now):
        one = view(row["provider_slug"])
        one.running, one.due, one.backoff = row["running"], row["due"], row["backoff"]
        one.rate_limited, one.oldest_due_at = row["rate_limited"], row["oldest_due_at"]
    for row in await _count_recent(tx, tenant_id):
        view(row["provider_slug"]).outcomes[row["outcome"]] = row["count"]
    return [found[slug] for slug in sorted(found)]


async def _count_recent(tx: Transaction, tenant_id: str | None) -> Any:
    if tenant_id is None:
        return await tx.fetch(COUNT_RECENT, JOBS_LOOKED_AT)
    return await tx.fetch(COUNT_RECENT_OF_TENANT, tenant_id, JOBS_LOOKED_AT)


COUNT_SIGNALS_OF_TENANT = """
    -- One tenant's signals, counted up to a bound.
    SELECT count(*) FROM (
        SELECT FROM {schema}.signals WHERE tenant_id = $1 LIMIT $2) AS counted
"""

MOST_COUNTED = 1_000_000


async def count_signals(tx: Transaction, tenant_id: str) -> int:
    count: int = await tx.fetchval(COUNT_SIGNALS_OF_TENANT, tenant_id, MOST_COUNTED)
    return count
