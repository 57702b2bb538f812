"""How old what was synced is: the last good sync of active connections, or of a sample."""

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime

from syncline.store.pool import Transaction

SAMPLED = 2000
RUNS_LOOKED_BACK = 20  # a connection that failed so often in a row counts from its creation

SAMPLE = """
    -- Active connections in some blocks of the table, and since when each waits for news.
    SELECT c.provider_slug, coalesce(good.finished_at, c.created_at) AS fresh_at
      FROM {schema}.connections AS c TABLESAMPLE SYSTEM ($1)
      LEFT JOIN LATERAL (
           SELECT max(late.finished_at) AS finished_at FROM (
               SELECT j.finished_at, j.status FROM {schema}.sync_jobs j
                WHERE j.connection_id = c.id AND j.finished_at IS NOT NULL
                ORDER BY j.finished_at DESC LIMIT $2) late
            WHERE late.status IN ('succeeded', 'completed')) good ON true
     WHERE c.status = 'active'
     LIMIT $3
"""


@dataclass(frozen=True, slots=True)
class Freshness:
    """Ages in seconds by provider; each stands for `weight` connections."""

    ages: dict[str, list[float]]
    weight: float


async def measure(tx: Transaction, *, connections: int, now: datetime) -> Freshness:
    """Return how old connections are, out of about so many."""
    share = min(SAMPLED / max(connections, 1), 1.0) if connections > 3 * SAMPLED else 1.0
    ages: dict[str, list[float]] = defaultdict(list)
    for row in await tx.fetch(SAMPLE, 100 * share, RUNS_LOOKED_BACK, 4 * SAMPLED):
        ages[row["provider_slug"]].append(max((now - row["fresh_at"]).total_seconds(), 0))
    return Freshness(ages, 1 / share)
