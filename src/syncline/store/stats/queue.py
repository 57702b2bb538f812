"""The queue by provider: what is due, what runs, and what is in backoff."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from syncline.policy.stats import BackoffGroup, QueueStats
from syncline.store.pool import Transaction

JOBS_READ = 20_000
BACKOFFS_READ = 5_000  # of each provider

READY = """
    -- Due jobs of each provider and priority, and those scheduled for later, up to a bound. The
    -- recursion hops along the index from one provider and priority to the next.
    WITH RECURSIVE heads AS (
        (SELECT provider_slug, priority, scheduled_at FROM {schema}.sync_jobs
          WHERE status = 'queued' AND retry_after IS NULL
          ORDER BY provider_slug, priority DESC, scheduled_at, id LIMIT 1)
        UNION ALL
        SELECT next.* FROM heads CROSS JOIN LATERAL (
            SELECT * FROM (
                (SELECT provider_slug, priority, scheduled_at FROM {schema}.sync_jobs
                  WHERE status = 'queued' AND retry_after IS NULL
                    AND provider_slug = heads.provider_slug AND priority < heads.priority
                  ORDER BY priority DESC, scheduled_at, id LIMIT 1)
                UNION ALL
                (SELECT provider_slug, priority, scheduled_at FROM {schema}.sync_jobs
                  WHERE status = 'queued' AND retry_after IS NULL
                    AND provider_slug > heads.provider_slug
                  ORDER BY provider_slug, priority DESC, scheduled_at, id LIMIT 1)) AS either
             ORDER BY provider_slug, priority DESC LIMIT 1) next
    )
    SELECT heads.provider_slug, heads.priority, heads.scheduled_at,
           (SELECT count(*) FROM (
                SELECT FROM {schema}.sync_jobs j
                 WHERE j.provider_slug = heads.provider_slug AND j.priority = heads.priority
                   AND j.status = 'queued' AND j.retry_after IS NULL AND j.scheduled_at <= $1
                 ORDER BY j.scheduled_at LIMIT $2) AS bounded) AS due,
           (SELECT count(*) FROM (
                SELECT FROM {schema}.sync_jobs j
                 WHERE j.provider_slug = heads.provider_slug AND j.priority = heads.priority
                   AND j.status = 'queued' AND j.retry_after IS NULL AND j.scheduled_at > $1
                 ORDER BY j.scheduled_at LIMIT $2) AS bounded) AS later
      FROM heads
"""

BACKOFF = """
    -- Jobs in backoff by provider and error class, up to a bound for each provider, the shortest
    -- waits first. The recursion hops along the index from one provider to the next.
    WITH RECURSIVE providers (slug) AS (
        (SELECT provider_slug FROM {schema}.sync_jobs
          WHERE status = 'queued' AND retry_after IS NOT NULL
          ORDER BY provider_slug, retry_after LIMIT 1)
        UNION ALL
        SELECT (SELECT j.provider_slug FROM {schema}.sync_jobs j
                 WHERE j.status = 'queued' AND j.retry_after IS NOT NULL
                   AND j.provider_slug > providers.slug
                 ORDER BY j.provider_slug, j.retry_after LIMIT 1)
          FROM providers WHERE providers.slug IS NOT NULL
    )
    SELECT providers.slug AS provider_slug, bounded.class, bounded.hinted, count(*) AS count,
           count(*) FILTER (WHERE bounded.retry_after <= $1) AS due,
           min(bounded.retry_after) AS first_at, max(bounded.retry_after) AS last_at
      FROM providers CROSS JOIN LATERAL (
           SELECT j.retry_after, j.error -> 'hinted' = 'true' AS hinted,
                  left(coalesce(j.error ->> 'class', 'unknown'), 100) AS class
             FROM {schema}.sync_jobs j
            WHERE j.status = 'queued' AND j.retry_after IS NOT NULL
              AND j.provider_slug = providers.slug
            ORDER BY j.retry_after LIMIT $2) AS bounded
     GROUP BY providers.slug, bounded.class, bounded.hinted
"""

RUNNING = """
    -- Running jobs by provider, up to a bound.
    SELECT provider_slug, count(*) AS count
      FROM (SELECT provider_slug FROM {schema}.sync_jobs
             WHERE status = 'running' ORDER BY connection_id, flight LIMIT $1) AS bounded
     GROUP BY provider_slug
"""

PENDING_OF_TENANT = """
    -- One tenant's pending jobs up to a bound, by way of its connections.
    WITH pending AS MATERIALIZED (
        SELECT j.provider_slug, j.status, j.error, j.retry_after,
               greatest(j.scheduled_at, j.retry_after) AS due_at
          FROM {schema}.connections c
         CROSS JOIN LATERAL (SELECT * FROM {schema}.sync_jobs
                              WHERE connection_id = c.id AND status IN ('queued', 'running')
                             OFFSET 0) j
         WHERE c.tenant_id = $1 LIMIT $3
    )
    SELECT provider_slug, status, retry_after IS NOT NULL AS has_failed,
           error -> 'hinted' = 'true' AS hinted,
           left(coalesce(error ->> 'class', 'unknown'), 100) AS class,
           count(*) AS count, count(*) FILTER (WHERE due_at <= $2) AS due,
           min(due_at) AS first_at, max(due_at) AS last_at
      FROM pending
     GROUP BY 1, 2, 3, 4, 5
"""


async def read_queues(
    tx: Transaction, tenant_id: str | None, *, now: datetime
) -> dict[str, QueueStats]:
    """Return the queues by provider."""
    queues = _Queues()
    if tenant_id is None:
        await _read_all(tx, queues, now)
    else:
        await _read_tenant(tx, queues, tenant_id, now)
    return queues.found


class _Queues:
    """The queues found so far."""

    def __init__(self) -> None:
        self.found: dict[str, QueueStats] = {}

    def of(self, row: Any) -> QueueStats:
        slug: str = row["provider_slug"]
        return self.found.setdefault(slug, QueueStats(slug))

    def add_backoff(self, row: Any) -> None:
        hinted, count, due = bool(row["hinted"]), row["count"], row["due"]
        group = BackoffGroup(row["class"], hinted, count, due, row["first_at"], row["last_at"])
        self.of(row).backoffs.append(group)
        self.of(row).add_due(due, group.first_at)


async def _read_all(tx: Transaction, queues: _Queues, now: datetime) -> None:
    for row in await tx.fetch(READY, now, JOBS_READ):
        queues.of(row).add_due(row["due"], row["scheduled_at"])
        queues.of(row).later += row["later"]
        queues.of(row).is_bounded |= max(row["due"], row["later"]) >= JOBS_READ
    for row in await tx.fetch(BACKOFF, now, BACKOFFS_READ):
        queues.add_backoff(row)
    for row in await tx.fetch(RUNNING, JOBS_READ):
        queues.of(row).running = row["count"]
    for queue in queues.found.values():
        queue.is_backoff_bounded = sum(group.count for group in queue.backoffs) >= BACKOFFS_READ


async def _read_tenant(tx: Transaction, queues: _Queues, tenant_id: str, now: datetime) -> None:
    rows = await tx.fetch(PENDING_OF_TENANT, tenant_id, now, JOBS_READ)
    for row in rows:
        if row["status"] == "running":
            queues.of(row).running += row["count"]
        elif row["has_failed"]:
            queues.add_backoff(row)
        else:
            queues.of(row).add_due(row["due"], row["first_at"])
            queues.of(row).later += row["count"] - row["due"]
    if sum(row["count"] for row in rows) >= JOBS_READ:
        for queue in queues.found.values():
            queue.is_bounded = queue.is_backoff_bounded = True


MEASURE_DEPTH = """
    -- Due jobs by provider, and since when the oldest has been due. Counted whole: a metric that
    -- stopped at a bound would hide how fast a backlog grows.
    SELECT provider_slug, count(*) AS depth,
           min(greatest(scheduled_at, retry_after)) AS oldest_due_at
      FROM {schema}.sync_jobs
     WHERE status = 'queued' AND scheduled_at <= $1
       AND (retry_after IS NULL OR retry_after <= $1)
     GROUP BY provider_slug
"""


@dataclass(frozen=True, slots=True)
class QueueDepth:
    depth_by_provider: dict[str, int]
    oldest_due_at: datetime | None


async def measure_depth(tx: Transaction, *, now: datetime) -> QueueDepth:
    rows = await tx.fetch(MEASURE_DEPTH, now)
    return QueueDepth(
        {row["provider_slug"]: row["depth"] for row in rows},
        min((row["oldest_due_at"] for row in rows), default=None),
    )
