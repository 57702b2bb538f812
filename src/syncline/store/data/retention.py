"""Deletion of old rows: finished jobs by ranges of ids, signals by time.

Neither needs an index of its own, which every settle would have to maintain.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from syncline.store.pool import Transaction

BATCH_END = """
    -- The id of the last job of a full batch; no row if fewer are left in the range.
    SELECT id FROM {schema}.sync_jobs WHERE id > $1 AND id <= $2
     ORDER BY id OFFSET $3::int - 1 LIMIT 1
"""


async def batch_end(tx: Transaction, after: UUID, until: UUID, *, size: int) -> UUID | None:
    """Return the last id of the next `size` jobs; None if the range has fewer."""
    end: UUID | None = await tx.fetchval(BATCH_END, after, until, size)
    return end


PRUNE_JOBS = """
    -- Delete the old jobs of a range, except those that another session holds, and those that alone
    -- know when their connection last completed a run or succeeded; return the connections of the
    -- latter. Neighbours by id were made together: they share pages of the table and of its indexes
    -- (4 µs a job). A later success makes a job superfluous: it is found beside it in the index by
    -- connection, and is itself deleted only after another, or after its time was copied. A full
    -- sync was asked for, so it counts as empty for nobody. A cancelled run may still be going on.
    WITH old AS MATERIALIZED (
        SELECT j.id, j.connection_id, CASE
               WHEN EXISTS (SELECT FROM {schema}.sync_jobs later
                             WHERE later.connection_id = j.connection_id
                               AND later.finished_at > j.finished_at
                               AND later.job_type = 'incremental' AND later.counts_as_last
                               AND later.status IN ('succeeded', 'completed') OFFSET 0) THEN true
               ELSE EXISTS (SELECT FROM {schema}.connections c
                             WHERE c.id = j.connection_id
                               AND (j.job_type <> 'incremental' OR NOT j.counts_as_last
                                    OR j.finished_at <= c.last_finished_at)
                               AND (j.status NOT IN ('succeeded', 'completed')
                                    OR j.finished_at <= c.last_succeeded_at) OFFSET 0)
               END AS is_known_elsewhere
          FROM {schema}.sync_jobs j
         WHERE j.id > $1 AND j.id <= $2
           AND j.status IN ('succeeded', 'completed', 'failed', 'cancelled')
           AND (greatest(j.finished_at, j.stops_by, j.lease_expires_at) < $3
                OR j.finished_at < $4 AND j.is_empty AND j.status = 'succeeded'
                   AND j.job_type <> 'full')
         ORDER BY j.id
           FOR UPDATE OF j SKIP LOCKED
    ), gone AS (
        DELETE FROM {schema}.sync_jobs
         WHERE id = ANY (ARRAY(SELECT id FROM old WHERE is_known_elsewhere))
     RETURNING is_empty
    )
    SELECT (SELECT count(*) FROM gone WHERE is_empty IS NOT TRUE) AS jobs,
           (SELECT count(*) FROM gone WHERE is_empty) AS empty_jobs,
           ARRAY(SELECT DISTINCT connection_id FROM old WHERE NOT is_known_elsewhere) AS unkept
"""


@dataclass(frozen=True, slots=True)
class OldJobs:
    """Jobs in a range of ids that finished before a time, which is another one for empty runs."""

    after: UUID
    until: UUID
    finished_before: datetime
    empty_before: datetime


@dataclass(frozen=True, slots=True)
class Pruned:
    """What was deleted, and the connections some of whose jobs must be copied from first."""

    jobs: int
    empty_jobs: int
    unkept: Sequence[UUID]


async def prune_jobs(tx: Transaction, old: OldJobs) -> Pruned:
    row = await tx.fetchrow(PRUNE_JOBS, old.after, old.until, old.finished_before, old.empty_before)
    return Pruned(**row)


KEEP_LAST = """
    -- Copy the last completion and the last success of connections that are free, so that the jobs
    -- which tell of them can be deleted. The tick copies the completion when another run follows;
    -- this is for connections without one.
    WITH unkept AS MATERIALIZED (
        SELECT c.id, done.finished_at, good.finished_at AS succeeded_at
          FROM unnest($1::uuid[]) AS picked (id)
          JOIN {schema}.connections c ON c.id = picked.id
          LEFT JOIN LATERAL (
               SELECT j.finished_at FROM {schema}.sync_jobs j
                WHERE j.connection_id = picked.id AND {is_completion}
                  AND j.status IN ('succeeded', 'completed', 'failed', 'cancelled')
                ORDER BY j.finished_at DESC LIMIT 1) done ON true
          LEFT JOIN LATERAL (
               SELECT j.finished_at FROM {schema}.sync_jobs j
                WHERE j.connection_id = picked.id AND j.finished_at IS NOT NULL
                  AND j.status IN ('succeeded', 'completed')
                ORDER BY j.finished_at DESC LIMIT 1) good ON true
         ORDER BY c.id
           FOR NO KEY UPDATE OF c SKIP LOCKED
    )
    UPDATE {schema}.connections c
       SET last_finished_at = greatest(c.last_finished_at, unkept.finished_at),
           last_succeeded_at = greatest(c.last_succeeded_at, unkept.succeeded_at)
      FROM unkept WHERE c.id = ANY (ARRAY[unkept.id])
"""


async def keep_last(tx: Transaction, connections: Sequence[UUID]) -> int:
    """Return how many connections got copies; the others are held or gone."""
    return await tx.execute(KEEP_LAST, connections)


READ_POSITIONS = """
    -- How far each walk has come, and when it last reached its end.
    SELECT name, last_id, completed_at FROM {schema}.prune_walks
"""

SAVE_POSITION = """
    -- Note how far a walk has come.
    INSERT INTO {schema}.prune_walks AS walk (name, last_id, completed_at) VALUES ($1, $2, $3)
        ON CONFLICT (name) DO UPDATE
       SET last_id = excluded.last_id,
           completed_at = coalesce(excluded.completed_at, walk.completed_at)
"""


@dataclass(frozen=True, slots=True)
class Position:
    """The last id that a walk has passed, and when the walk last reached its end."""

    last_id: UUID
    completed_at: datetime | None = None


async def read_positions(tx: Transaction) -> Mapping[str, Position]:
    """Return how far walks have come, by name; one that never began is missing."""
    rows = await tx.fetch(READ_POSITIONS)
    return {row["name"]: Position(row["last_id"], row["completed_at"]) for row in rows}


async def save_position(tx: Transaction, name: str, position: Position) -> None:
    """Save how far a walk has come; without a time, that of its last completion stays."""
    await tx.execute(SAVE_POSITION, name, position.last_id, position.completed_at)


PRUNE_SIGNALS = """
    -- Delete some of the oldest signals, except those that another session holds.
    DELETE FROM {schema}.signals
     WHERE id = ANY (ARRAY(SELECT id FROM {schema}.signals WHERE received_at < $1
                            ORDER BY received_at LIMIT $2 FOR UPDATE SKIP LOCKED))
"""


async def prune_signals(tx: Transaction, *, before: datetime, limit: int) -> int:
    return await tx.execute(PRUNE_SIGNALS, before, limit)
