"""The queue and what goes wrong in it, by provider, at a cost that ends at a bound."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from syncline.store.pool import Transaction

JOBS_LOOKED_AT = 20_000
WAITING_LOOKED_AT = 5_000  # of each provider
FAILURES_LOOKED_AT = 2_000

WAITING_BY_PRIORITY = """
    -- The providers and priorities that wait, by hopping along the index, each with its first job.
    WITH RECURSIVE lanes AS (
        (SELECT provider_slug, priority, scheduled_at FROM {schema}.sync_jobs
          WHERE status = 'queued' AND retry_after IS NULL
          ORDER BY provider_slug, priority DESC, scheduled_at, id LIMIT 1)
        UNION ALL
        SELECT next.* FROM lanes CROSS JOIN LATERAL (
            SELECT * FROM (
                (SELECT provider_slug, priority, scheduled_at FROM {schema}.sync_jobs
                  WHERE status = 'queued' AND retry_after IS NULL
                    AND provider_slug = lanes.provider_slug AND priority < lanes.priority
                  ORDER BY priority DESC, scheduled_at, id LIMIT 1)
                UNION ALL
                (SELECT provider_slug, priority, scheduled_at FROM {schema}.sync_jobs
                  WHERE status = 'queued' AND retry_after IS NULL
                    AND provider_slug > lanes.provider_slug
                  ORDER BY provider_slug, priority DESC, scheduled_at, id LIMIT 1)) AS either
             ORDER BY provider_slug, priority DESC LIMIT 1) next
    )
    SELECT lanes.provider_slug, lanes.priority, lanes.scheduled_at,
           (SELECT count(*) FROM (
                SELECT FROM {schema}.sync_jobs j
                 WHERE j.provider_slug = lanes.provider_slug AND j.priority = lanes.priority
                   AND j.status = 'queued' AND j.retry_after IS NULL AND j.scheduled_at <= $1
                 ORDER BY j.scheduled_at LIMIT $2) AS bounded) AS due
      FROM lanes
"""

WAITING = """
    -- Jobs in backoff, by provider and class of their error, those of each provider that wait
    -- shortest; `asked` where the provider asked for the pause.
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
    SELECT providers.slug AS provider_slug, bounded.class, bounded.asked, count(*) AS count,
           count(*) FILTER (WHERE bounded.retry_after <= $1) AS due,
           min(bounded.retry_after) AS first_at, max(bounded.retry_after) AS last_at
      FROM providers CROSS JOIN LATERAL (
           SELECT j.retry_after, j.error -> 'hinted' = 'true' AS asked,
                  left(coalesce(j.error ->> 'class', 'unknown'), 100) AS class
             FROM {schema}.sync_jobs j
            WHERE j.status = 'queued' AND j.retry_after IS NOT NULL
              AND j.provider_slug = providers.slug
            ORDER BY j.retry_after LIMIT $2) AS bounded
     GROUP BY providers.slug, bounded.class, bounded.asked
"""

RUNNING = """
    -- Jobs that run, by provider.
    SELECT provider_slug, count(*) AS count
      FROM (SELECT provider_slug FROM {schema}.sync_jobs
             WHERE status = 'running' ORDER BY connection_id, flight LIMIT $1) AS bounded
     GROUP BY provider_slug
"""

FAILED = """
    -- What failed for good of late, by provider and class.
    SELECT provider_slug, class, count(*) AS count
      FROM (SELECT provider_slug, left(coalesce(error ->> 'class', 'unknown'), 100) AS class
              FROM {schema}.sync_jobs
             WHERE status = 'failed' AND coalesce(status, '') IN ('failed', 'cancelled')
               AND id >= $1
             ORDER BY id DESC LIMIT $2) AS bounded
     GROUP BY provider_slug, class
"""


@dataclass(slots=True)
class Pause:
    """Jobs of one provider that wait after the same class of error."""

    error_class: str
    is_asked: bool
    count: int
    due: int
    first_at: datetime
    last_at: datetime


@dataclass(slots=True)
class QueueStats:
    """What waits, runs and fails of one provider."""

    provider_slug: str
    due: int = 0
    oldest_due_at: datetime | None = None
    running: int = 0
    pauses: list[Pause] = field(default_factory=list)
    failed: dict[str, int] = field(default_factory=dict)
    is_bounded: bool = False

    def add_due(self, count: int, oldest_at: datetime) -> None:
        self.due += count
        self.is_bounded = self.is_bounded or count >= JOBS_LOOKED_AT
        if count and (self.oldest_due_at is None or oldest_at < self.oldest_due_at):
            self.oldest_due_at = oldest_at

    @property
    def failures(self) -> dict[str, int]:
        """Failures by class: what failed for good of late, and what is tried again."""
        found = dict(self.failed)
        for pause in self.pauses:
            found[pause.error_class] = found.get(pause.error_class, 0) + pause.count
        return found


async def read_queues(
    tx: Transaction, *, now: datetime, failed_from: UUID
) -> dict[str, QueueStats]:
    """Return what waits, runs and fails, by provider."""
    found: dict[str, QueueStats] = {}

    def stats(row: Any) -> QueueStats:
        slug: str = row["provider_slug"]
        return found.setdefault(slug, QueueStats(slug))

    for row in await tx.fetch(WAITING_BY_PRIORITY, now, JOBS_LOOKED_AT):
        stats(row).add_due(row["due"], row["scheduled_at"])
    for row in await tx.fetch(WAITING, now, WAITING_LOOKED_AT):
        pause = Pause(
            row["class"],
            bool(row["asked"]),
            row["count"],
            row["due"],
            row["first_at"],
            row["last_at"],
        )
        stats(row).pauses.append(pause)
        stats(row).add_due(pause.due, pause.first_at)
    for row in await tx.fetch(RUNNING, JOBS_LOOKED_AT):
        stats(row).running = row["count"]
    for row in await tx.fetch(FAILED, failed_from, FAILURES_LOOKED_AT):
        stats(row).failed[row["class"]] = row["count"]
    return found


RECENT_OUTCOMES = """
    -- What became of the jobs made last, by provider.
    SELECT provider_slug, count(*) FILTER (WHERE status IN ('succeeded', 'completed')) AS good,
           count(*) FILTER (WHERE status = 'failed' OR status = 'queued' AND error IS NOT NULL)
           AS bad
      FROM (SELECT provider_slug, status, error FROM {schema}.sync_jobs
             ORDER BY id DESC LIMIT $1) AS latest
     GROUP BY provider_slug
"""


async def count_outcomes(tx: Transaction) -> dict[str, tuple[int, int]]:
    """Return how many of the jobs made last went well, and how many did not, by provider."""
    rows = await tx.fetch(RECENT_OUTCOMES, FAILURES_LOOKED_AT)
    return {row["provider_slug"]: (row["good"], row["bad"]) for row in rows}
