"""The evidence for an explanation: a connection, its jobs and the last tick."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from syncline.model import ConnectionStatus
from syncline.policy.evidence import EndedJob, PendingJob, StoppingJob
from syncline.policy.schedule import Candidate
from syncline.sdk.json_text import read_json
from syncline.store.checks.doctor import last_tick
from syncline.store.pool import Transaction
from syncline.store.queue import schedule

READ_CONNECTION = """
    -- The connection's status, if it is the tenant's.
    SELECT id, status, status_reason FROM {schema}.connections
     WHERE id = $1 AND ($2::text IS NULL OR tenant_id = $2)
"""

READ_PENDING = """
    -- Pending jobs.
    SELECT id, job_type, status, priority, attempts, lapses, scheduled_at, retry_after, started_at,
           slot_at, lease_expires_at, error, deferred_until
      FROM {schema}.sync_jobs
     WHERE connection_id = $1 AND status IN ('queued', 'running')
     ORDER BY id
"""

READ_STOPPING = """
    -- Cancelled jobs that may still be running.
    SELECT id, job_type, coalesce(stops_by, lease_expires_at) AS stops_by FROM {schema}.sync_jobs
     WHERE connection_id = $1 AND status <> 'running'
       AND (stops_by IS NOT NULL OR lease_token IS NOT NULL)
       AND coalesce(stops_by, lease_expires_at) > $2
     ORDER BY stops_by DESC
"""

READ_ENDED = """
    -- The job that ended last.
    SELECT id, job_type, status, finished_at, error FROM {schema}.sync_jobs
     WHERE connection_id = $1 AND finished_at IS NOT NULL
     ORDER BY finished_at DESC, id DESC LIMIT 1
"""

READ_SUCCESS = """
    -- When a job last succeeded; one that was pruned left its time on the connection.
    SELECT greatest(c.last_succeeded_at, (
               SELECT finished_at FROM {schema}.sync_jobs
                WHERE connection_id = $1 AND finished_at IS NOT NULL
                  AND status IN ('succeeded', 'completed')
                ORDER BY finished_at DESC LIMIT 1))
      FROM {schema}.connections c WHERE c.id = $1
"""


@dataclass(frozen=True, slots=True)
class Observed:
    """What the database holds about one connection."""

    status: ConnectionStatus
    status_reason: Any
    candidate: Candidate
    pending: tuple[PendingJob, ...]
    stopping: tuple[StoppingJob, ...]
    last_ended: EndedJob | None
    last_succeeded_at: datetime | None
    last_tick_at: datetime | None


async def observe(
    tx: Transaction, connection_id: UUID, tenant_id: str | None, *, now: datetime
) -> Observed | None:
    """Return what the database holds about a connection; None if there is no such one."""
    connection = await tx.fetchrow(READ_CONNECTION, connection_id, tenant_id)
    candidate = next(await schedule.read_candidates(tx, [connection_id]), None)
    if connection is None or candidate is None:
        return None
    pending = await tx.fetch(READ_PENDING, connection_id)
    stopping = await tx.fetch(READ_STOPPING, connection_id, now)
    ended = await tx.fetchrow(READ_ENDED, connection_id)
    return Observed(
        status=ConnectionStatus(connection["status"]),
        status_reason=read_json(connection["status_reason"]),
        candidate=candidate,
        pending=tuple(PendingJob(**_with_error(row)) for row in pending),
        stopping=tuple(StoppingJob(*row) for row in stopping),
        last_ended=EndedJob(**_with_error(ended)) if ended else None,
        last_succeeded_at=await tx.fetchval(READ_SUCCESS, connection_id),
        last_tick_at=await last_tick(tx),
    )


def _with_error(row: Any) -> dict[str, Any]:
    return {**row, "error": read_json(row["error"])}
