"""Deletion of old rows: finished jobs by connection, signals by time.

Neither needs an index of its own, which every settle would have to maintain.
"""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from syncline.store.pool import Transaction

NEXT_CONNECTIONS = """
    -- The next connections in the order of their ids.
    SELECT id FROM {schema}.connections WHERE id > $1 ORDER BY id LIMIT $2
"""


async def next_connections(tx: Transaction, *, after: UUID, limit: int) -> list[UUID]:
    return [row["id"] for row in await tx.fetch(NEXT_CONNECTIONS, after, limit)]


KEEP_LAST = """
    -- Copy the last completion to connections that have it only in a job that will be deleted. The
    -- tick copies it when another run follows; this is for connections without one.
    WITH unkept AS MATERIALIZED (
        SELECT c.id, last.finished_at
          FROM unnest($1::uuid[]) AS picked (id)
          JOIN {schema}.connections c ON c.id = picked.id
         CROSS JOIN LATERAL (
               SELECT j.finished_at FROM {schema}.sync_jobs j
                WHERE j.connection_id = picked.id AND {is_completion}
                  AND j.status IN ('succeeded', 'completed', 'failed', 'cancelled')
                ORDER BY j.finished_at DESC LIMIT 1) last
         WHERE last.finished_at < $2
           AND (c.last_finished_at IS NULL OR c.last_finished_at < last.finished_at)
         ORDER BY c.id
           FOR NO KEY UPDATE OF c SKIP LOCKED
    )
    UPDATE {schema}.connections c SET last_finished_at = unkept.finished_at
      FROM unkept WHERE c.id = unkept.id
"""


async def keep_last(tx: Transaction, connections: Sequence[UUID], *, before: datetime) -> int:
    """Return how many connections got their last completion from a job."""
    return await tx.execute(KEEP_LAST, connections, before)


PRUNE_JOBS = """
    -- Delete some finished jobs of these connections, except a last completion that its
    -- connection has no copy of.
    WITH old AS MATERIALIZED (
        SELECT job.id
          FROM unnest($1::uuid[]) AS picked (id)
         CROSS JOIN LATERAL (SELECT last_finished_at FROM {schema}.connections
                              WHERE id = picked.id OFFSET 0) c
         CROSS JOIN LATERAL (
               SELECT j.id FROM {schema}.sync_jobs j
                WHERE j.connection_id = picked.id AND j.finished_at < $2
                  AND j.status IN ('succeeded', 'completed', 'failed', 'cancelled')
                  AND (j.job_type <> 'incremental' OR NOT j.counts_as_last
                       OR j.finished_at <= c.last_finished_at
                       OR EXISTS (SELECT FROM {schema}.sync_jobs later
                                   WHERE later.connection_id = j.connection_id
                                     AND later.finished_at > j.finished_at
                                     AND later.job_type = 'incremental' AND later.counts_as_last
                                     AND later.status IN ('succeeded', 'completed', 'failed',
                                                          'cancelled') OFFSET 0))
                ORDER BY j.finished_at LIMIT $3
                  FOR UPDATE OF j SKIP LOCKED) job
         LIMIT $3
    )
    DELETE FROM {schema}.sync_jobs WHERE id = ANY (ARRAY(SELECT id FROM old))
"""


async def prune_jobs(
    tx: Transaction, connections: Sequence[UUID], *, before: datetime, limit: int
) -> int:
    return await tx.execute(PRUNE_JOBS, connections, before, limit)


PRUNE_SIGNALS = """
    -- Delete some of the oldest signals, except those that another session holds.
    DELETE FROM {schema}.signals
     WHERE id = ANY (ARRAY(SELECT id FROM {schema}.signals WHERE received_at < $1
                            ORDER BY received_at LIMIT $2 FOR UPDATE SKIP LOCKED))
"""


async def prune_signals(tx: Transaction, *, before: datetime, limit: int) -> int:
    return await tx.execute(PRUNE_SIGNALS, before, limit)
