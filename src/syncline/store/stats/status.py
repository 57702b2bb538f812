"""What a status screen shows: counts, what happened last, what comes next, who is in trouble.

Every statement looks at what is pending or new, never at the whole history.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from syncline.sdk.json_text import read_json
from syncline.store.pool import Transaction
from syncline.store.stats.summary import Summary, summarise

JOBS_LOOKED_AT = 1000
PREVIEW_CHARACTERS = 300

RECENT_ATTEMPTS = """
    -- What was started last, among the jobs made last: history is not searched.
    WITH latest AS MATERIALIZED (
        SELECT id, connection_id, job_type, status, attempts, started_at, finished_at, error
          FROM {schema}.sync_jobs ORDER BY id DESC LIMIT $2
    )
    SELECT c.tenant_id, c.provider_slug, c.external_id, c.id AS connection_id,
           latest.id AS job_id, latest.job_type, latest.status, latest.attempts,
           latest.started_at, latest.finished_at, latest.error
      FROM latest JOIN {schema}.connections c ON c.id = latest.connection_id
     WHERE latest.started_at IS NOT NULL
     ORDER BY coalesce(latest.finished_at, latest.started_at) DESC, latest.id DESC
     LIMIT $1
"""

NEXT_RUNS = """
    -- Queued jobs by when they are due, then connections by when the scheduler looks at them.
    (SELECT c.tenant_id, c.provider_slug, c.external_id, c.id AS connection_id, j.due_at, j.attempts
       FROM (SELECT id, connection_id, attempts, greatest(scheduled_at, retry_after) AS due_at
               FROM {schema}.sync_jobs WHERE status = 'queued'
              ORDER BY due_at, id LIMIT $1) j
       JOIN {schema}.connections c ON c.id = j.connection_id)
    UNION ALL
    (SELECT c.tenant_id, c.provider_slug, c.external_id, c.id, greatest(c.look_at, $2), 0
       FROM {schema}.connections c
      WHERE c.status = 'active'
        AND NOT EXISTS (SELECT FROM {schema}.sync_jobs j
                         WHERE j.connection_id = c.id AND j.job_type = 'incremental'
                           AND j.status IN ('queued', 'running'))
      ORDER BY c.look_at, c.id LIMIT $1)
    ORDER BY due_at, connection_id LIMIT $1
"""

TROUBLES = """
    -- Connections that wait for a person, the latest first; then jobs that fail over and over.
    (SELECT c.tenant_id, c.provider_slug, c.external_id, c.id AS connection_id, c.status,
            c.status_reason AS reason, NULL::int AS attempts, NULL::timestamptz AS retry_after
       FROM {schema}.connections c
      WHERE c.status IN ('needs_reauth', 'error')
      ORDER BY c.updated_at DESC, c.id LIMIT $1)
    UNION ALL
    (SELECT c.tenant_id, c.provider_slug, c.external_id, c.id, 'backoff',
            j.error, j.attempts, j.retry_after
       FROM (SELECT * FROM {schema}.sync_jobs
              WHERE status = 'queued' AND retry_after IS NOT NULL
              ORDER BY attempts DESC, id LIMIT $1) j
       JOIN {schema}.connections c ON c.id = j.connection_id
      ORDER BY j.attempts DESC, j.id)
"""

LATEST_SIGNALS = """
    -- What was stored last, each with the beginning of its payload.
    SELECT s.tenant_id, s.provider_slug, coalesce(c.external_id, '') AS external_id,
           s.connection_id, s.kind, s.occurred_at, left(s.payload::text, $2) AS preview
      FROM (SELECT * FROM {schema}.signals ORDER BY id DESC LIMIT $1) s
      LEFT JOIN {schema}.connections c ON c.id = s.connection_id
     ORDER BY s.id DESC
"""


@dataclass(frozen=True, slots=True)
class Whose:
    """Which connection a line of the screen is about."""

    tenant_id: str
    provider_slug: str
    external_id: str
    connection_id: UUID


@dataclass(frozen=True, slots=True)
class Attempt(Whose):
    job_id: UUID
    job_type: str
    status: str
    attempts: int
    started_at: datetime
    finished_at: datetime | None
    error: Any


@dataclass(frozen=True, slots=True)
class NextRun(Whose):
    due_at: datetime
    attempts: int


@dataclass(frozen=True, slots=True)
class Trouble(Whose):
    """A connection in `needs_reauth` or `error`, or one whose job is in `backoff`."""

    status: str
    reason: Any
    attempts: int | None
    retry_after: datetime | None


@dataclass(frozen=True, slots=True)
class LatestSignal(Whose):
    kind: str
    occurred_at: datetime
    preview: str


@dataclass(frozen=True, slots=True)
class Status:
    now: datetime
    summary: Summary
    recent: Sequence[Attempt]
    next_runs: Sequence[NextRun]
    troubles: Sequence[Trouble]
    signals: Sequence[LatestSignal]


async def look(tx: Transaction, *, now: datetime, limit: int) -> Status:
    """Return the counts, and up to `limit` lines of each list."""
    recent = await tx.fetch(RECENT_ATTEMPTS, limit, JOBS_LOOKED_AT)
    next_runs = await tx.fetch(NEXT_RUNS, limit, now)
    troubles = await tx.fetch(TROUBLES, limit)
    signals = await tx.fetch(LATEST_SIGNALS, limit, PREVIEW_CHARACTERS)
    return Status(
        now=now,
        summary=await summarise(tx),
        recent=[Attempt(**_with_json(row, "error")) for row in recent],
        next_runs=[NextRun(**row) for row in next_runs],
        troubles=[Trouble(**_with_json(row, "reason")) for row in troubles],
        signals=[LatestSignal(**row) for row in signals],
    )


def _with_json(row: Any, column: str) -> dict[str, Any]:
    return {**row, column: read_json(row[column])}
