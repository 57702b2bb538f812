"""Failed attempts of jobs: keep the last ones of each job, list them, and delete them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from syncline.model import Attempt
from syncline.sdk.json_text import read_json
from syncline.store.pool import Transaction
from syncline.store.queue.claims import Claim

KEPT = 10  # of each job

KEEP = """
    -- Keep failed attempts, and of each job the last ones. Times of the engine order them, because
    -- ids of several processes do not.
    WITH failed AS MATERIALIZED (
        SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::uuid[], $5::text[],
                             $6::bigint[], $7::jsonb[], $8::text[], $9::jsonb[], $10::int[],
                             $11::int[])
               AS failed (id, job_id, tenant_id, connection_id, worker, milliseconds, error, trace,
                          calls, call_count, signals)
    ), gone AS (
        DELETE FROM {schema}.job_attempts old USING failed
         WHERE old.job_id = ANY (ARRAY[failed.job_id])
           AND (old.ended_at, old.id) <= (
               SELECT kept.ended_at, kept.id FROM {schema}.job_attempts kept
                WHERE kept.job_id = failed.job_id
                ORDER BY kept.ended_at DESC, kept.id DESC OFFSET $13 LIMIT 1)
    )
    INSERT INTO {schema}.job_attempts
           (job_id, ended_at, id, tenant_id, connection_id, worker, milliseconds, error, trace,
            calls, call_count, signals)
    SELECT job_id, $12::timestamptz, id, tenant_id, connection_id, worker, milliseconds, error,
           trace, calls, call_count, signals
      FROM failed
"""


@dataclass(frozen=True, slots=True)
class AttemptReport:
    """What the process that ran an attempt knows of it."""

    worker: str | None = None
    milliseconds: int | None = None
    trace: str | None = None
    calls: str = "[]"  # JSON: the first and the last ones
    call_count: int = 0
    signals: int = 0  # of the pages that it committed


UNKNOWN = AttemptReport()  # its worker no longer answers


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """A failed attempt as it is stored."""

    id: UUID
    claim: Claim
    error: str
    report: AttemptReport


async def keep(tx: Transaction, failed: Sequence[FailedAttempt], *, now: datetime) -> None:
    """Store attempts that ended now; of each job only the last ones stay."""
    await tx.execute(
        KEEP,
        [one.id for one in failed],
        [one.claim.id for one in failed],
        [one.claim.tenant_id for one in failed],
        [one.claim.connection_id for one in failed],
        [one.report.worker for one in failed],
        [one.report.milliseconds for one in failed],
        [one.error for one in failed],
        [one.report.trace for one in failed],
        [one.report.calls for one in failed],
        [one.report.call_count for one in failed],
        [one.report.signals for one in failed],
        now,
        KEPT - 1,  # beside the new one
    )


OF_JOB = """
    -- A job's failed attempts, the last one first. Only operators see traces and workers.
    SELECT id, job_id, ended_at, milliseconds, error, calls, call_count, signals,
           CASE WHEN $2::text IS NULL THEN worker END AS worker,
           CASE WHEN $2::text IS NULL THEN trace END AS trace
      FROM {schema}.job_attempts
     WHERE job_id = $1 AND ($2::text IS NULL OR tenant_id = $2)
     ORDER BY ended_at DESC, id DESC LIMIT $3
"""


async def list_of_job(tx: Transaction, job_id: UUID, tenant_id: str | None) -> list[Attempt]:
    """Return a job's attempts; with a tenant's, without what is about this installation."""
    rows = await tx.fetch(OF_JOB, job_id, tenant_id, KEPT)
    return [
        Attempt(**{**row, "error": read_json(row["error"]), "calls": read_json(row["calls"])})
        for row in rows
    ]


PRUNE = """
    -- Delete the attempts of jobs in a range of ids that are gone.
    DELETE FROM {schema}.job_attempts a
     WHERE a.job_id > $1 AND a.job_id <= $2
       AND NOT EXISTS (SELECT FROM {schema}.sync_jobs j WHERE j.id = a.job_id OFFSET 0)
"""


async def prune(tx: Transaction, after: UUID, until: UUID) -> int:
    """Return how many attempts were deleted."""
    return await tx.execute(PRUNE, after, until)
