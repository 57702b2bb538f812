"""How much there is: the queue by provider, and a summary of everything."""

from dataclasses import dataclass
from datetime import datetime

from syncline.store.pool import Transaction

MEASURE_QUEUE = """
    -- Due jobs by provider, and how long the oldest has been due.
    SELECT provider_slug, count(*) AS depth,
           min(greatest(scheduled_at, retry_after)) AS oldest_due_at
      FROM {schema}.sync_jobs
     WHERE status = 'queued' AND scheduled_at <= $1
       AND (retry_after IS NULL OR retry_after <= $1)
     GROUP BY provider_slug
"""


@dataclass(frozen=True, slots=True)
class Queue:
    depth_by_provider: dict[str, int]
    oldest_due_at: datetime | None


async def measure_queue(tx: Transaction, *, now: datetime) -> Queue:
    rows = await tx.fetch(MEASURE_QUEUE, now)
    return Queue(
        {row["provider_slug"]: row["depth"] for row in rows},
        min((row["oldest_due_at"] for row in rows), default=None),
    )


COUNT_CONNECTIONS = """
    -- Connections by status.
    SELECT status, count(*) AS count FROM {schema}.connections GROUP BY status
"""

COUNT_JOBS = """
    -- Pending jobs by status, and what ended of late.
    SELECT status, count(*) AS count FROM {schema}.sync_jobs
     WHERE status IN ('queued', 'running') GROUP BY status
"""

COUNT_SIGNALS = """
    -- Signals: the planner's estimate while the table is large, exact while it is small.
    SELECT CASE WHEN reltuples > 100000 THEN reltuples::bigint END AS estimate
      FROM pg_catalog.pg_class WHERE oid = $1::text::regclass
"""

COUNT_SIGNALS_EXACTLY = """
    -- Signals, every one.
    SELECT count(*) FROM {schema}.signals
"""


@dataclass(frozen=True, slots=True)
class Summary:
    connections: dict[str, int]
    pending_jobs: dict[str, int]
    signals: int


async def summarise(tx: Transaction) -> Summary:
    """Return the counts that a status screen shows."""
    connections = await tx.fetch(COUNT_CONNECTIONS)
    pending = await tx.fetch(COUNT_JOBS)
    estimate = await tx.fetchval(COUNT_SIGNALS, tx.qualified("signals"))
    return Summary(
        connections={row["status"]: row["count"] for row in connections},
        pending_jobs={row["status"]: row["count"] for row in pending},
        signals=estimate or await tx.fetchval(COUNT_SIGNALS_EXACTLY),
    )
