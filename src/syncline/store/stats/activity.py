"""What happens now: how much is written, what runs longest, what fails most, what waits."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from syncline.model import Worker
from syncline.sdk.json_text import read_json
from syncline.store.data import workers
from syncline.store.pool import Transaction
from syncline.store.stats import summary as views
from syncline.store.stats.status import Whose
from syncline.store.stats.summary import Queue, Summary

WRITTEN = """
    -- Rows written since the server's statistics began: jobs made, signals stored.
    SELECT coalesce(sum(n_tup_ins) FILTER (WHERE relid = $1::text::regclass), 0)::bigint AS jobs,
           coalesce(sum(n_tup_ins) FILTER (WHERE relid = $2::text::regclass), 0)::bigint AS signals
      FROM pg_catalog.pg_stat_all_tables
     WHERE relid IN ($1::text::regclass, $2::text::regclass)
"""

SLOWEST = """
    -- What has been running longest.
    SELECT c.tenant_id, c.provider_slug, c.external_id, c.id AS connection_id,
           j.job_type, j.started_at, j.attempts
      FROM (SELECT id, connection_id, job_type, started_at, attempts FROM {schema}.sync_jobs
             WHERE status = 'running' ORDER BY started_at, id LIMIT $1) j
      JOIN {schema}.connections c ON c.id = j.connection_id
     ORDER BY j.started_at, j.id
"""

FAILING = """
    -- What fails over and over, the most often first.
    SELECT c.tenant_id, c.provider_slug, c.external_id, c.id AS connection_id,
           j.attempts, j.retry_after, j.error
      FROM (SELECT id, connection_id, attempts, retry_after, error FROM {schema}.sync_jobs
             WHERE status = 'queued' AND retry_after IS NOT NULL
             ORDER BY attempts DESC, id LIMIT $1) j
      JOIN {schema}.connections c ON c.id = j.connection_id
     ORDER BY j.attempts DESC, j.id
"""


@dataclass(frozen=True, slots=True)
class Slow(Whose):
    job_type: str
    started_at: datetime
    attempts: int


@dataclass(frozen=True, slots=True)
class Failing(Whose):
    attempts: int
    retry_after: datetime
    error: Any


@dataclass(frozen=True, slots=True)
class Activity:
    """`jobs_made` and `signals_stored` only grow; two looks tell how fast."""

    now: datetime
    summary: Summary
    jobs_made: int
    signals_stored: int
    queue: Queue
    workers: Sequence[Worker]
    slowest: Sequence[Slow]
    failing: Sequence[Failing]


async def look(tx: Transaction, *, now: datetime, silent_since: datetime, limit: int) -> Activity:
    """Return what happens now, with up to `limit` lines of each list."""
    written = await tx.fetchrow(WRITTEN, tx.qualified("sync_jobs"), tx.qualified("signals"))
    slowest = await tx.fetch(SLOWEST, limit)
    failing = await tx.fetch(FAILING, limit)
    return Activity(
        now=now,
        summary=await views.summarise(tx),
        jobs_made=written["jobs"],
        signals_stored=written["signals"],
        queue=await views.measure_queue(tx, now=now),
        workers=await workers.list_all(tx, silent_since=silent_since),
        slowest=[Slow(**row) for row in slowest],
        failing=[Failing(**{**row, "error": read_json(row["error"])}) for row in failing],
    )
