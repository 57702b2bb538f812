"""The invariants that SQL can see, each with its name, its sentence and the query that breaks it.

Every query returns offending rows, at most a few; none of them means the invariant holds.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from syncline.policy.schedule import ScheduleRules
from syncline.store.pool import Transaction

SHOWN = 20
TIMEOUT_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Invariant:
    name: str
    sentence: str
    query: str


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that does not hold, and rows that show it."""

    name: str
    sentence: str
    rows: Sequence[dict[str, Any]]


INVARIANTS = (
    Invariant(
        "one_pending_job",
        "A connection has at most one queued or running job of a type.",
        """
        SELECT connection_id, job_type, count(*) AS jobs FROM {schema}.sync_jobs
         WHERE status IN ('queued', 'running')
         GROUP BY connection_id, job_type HAVING count(*) > 1 LIMIT $1
        """,
    ),
    Invariant(
        "single_flight",
        "A connection has at most one running job of a flight.",
        """
        SELECT connection_id, flight, count(*) AS jobs FROM {schema}.sync_jobs
         WHERE status = 'running'
         GROUP BY connection_id, flight HAVING count(*) > 1 LIMIT $1
        """,
    ),
    Invariant(
        "running_has_lease",
        "A job is running if, and only if, somebody holds a lease on it.",
        """
        SELECT id, connection_id, status FROM {schema}.sync_jobs
         WHERE (status = 'running') <> (lease_token IS NOT NULL AND lease_expires_at IS NOT NULL)
            OR (lease_token IS NULL) <> (lease_expires_at IS NULL)
         LIMIT $1
        """,
    ),
    Invariant(
        "finished_has_time",
        "A job has a finish time if, and only if, it has finished.",
        """
        SELECT id, connection_id, status FROM {schema}.sync_jobs
         WHERE (finished_at IS NOT NULL)
               <> (status IN ('succeeded', 'completed', 'failed', 'cancelled'))
         LIMIT $1
        """,
    ),
    Invariant(
        "signal_once",
        "A connection has no two signals with the same dedupe key.",
        """
        SELECT connection_id, dedupe_key, count(*) AS signals FROM {schema}.signals
         WHERE dedupe_key IS NOT NULL
         GROUP BY connection_id, dedupe_key HAVING count(*) > 1 LIMIT $1
        """,
    ),
    Invariant(
        "plan_agrees",
        "A job that the scheduler made starts no later than its slot and the published jitter.",
        """
        SELECT j.id, j.connection_id, j.slot_at, j.scheduled_at,
               c.metadata #> '{sync,last_jitter_seconds}' AS last_jitter_seconds
          FROM {schema}.sync_jobs j JOIN {schema}.connections c ON c.id = j.connection_id
         WHERE j.status IN ('queued', 'running') AND j.slot_at IS NOT NULL
           AND (c.metadata #> '{sync,last_jitter_seconds}')::text ~ '^[0-9]{1,9}$'
           AND j.scheduled_at > j.slot_at + make_interval(secs =>
                   (c.metadata #>> '{sync,last_jitter_seconds}')::int)
         LIMIT $1
        """,
    ),
    Invariant(
        "scheduled_in_time",
        "No active connection without a job has a slot that passed more than two ticks ago.",
        """
        SELECT c.id AS connection_id, greatest(c.last_finished_at, done.finished_at) AS last
          FROM {schema}.connections c
          LEFT JOIN LATERAL (
               SELECT j.finished_at FROM {schema}.sync_jobs j
                WHERE j.connection_id = c.id AND j.finished_at IS NOT NULL
                  AND j.job_type = 'incremental' AND j.counts_as_last
                  AND j.status IN ('succeeded', 'completed', 'failed', 'cancelled')
                ORDER BY j.finished_at DESC LIMIT 1) done ON true
         WHERE c.status = 'active' AND c.updated_at < $2
           AND NOT EXISTS (SELECT FROM {schema}.sync_jobs pending
                            WHERE pending.connection_id = c.id
                              AND pending.job_type = 'incremental'
                              AND pending.status IN ('queued', 'running'))
           AND coalesce(greatest(c.last_finished_at, done.finished_at) + make_interval(secs =>
                   CASE WHEN CASE WHEN c.interval_stored ~ '^[0-9]{1,9}$'
                                  THEN c.interval_stored::int BETWEEN 60 AND $3 END
                        THEN c.interval_stored::int ELSE $4 END), c.created_at) < $2
         LIMIT $1
        """,
    ),
    Invariant(
        "tenants_agree",
        "A job and a signal belong to the tenant and the provider of their connection.",
        """
        SELECT 'job' AS kind, j.id, j.tenant_id, c.tenant_id AS connection_tenant
          FROM {schema}.sync_jobs j JOIN {schema}.connections c ON c.id = j.connection_id
         WHERE (j.tenant_id, j.provider_slug) <> (c.tenant_id, c.provider_slug)
         UNION ALL
        SELECT 'signal', s.id, s.tenant_id, c.tenant_id
          FROM {schema}.signals s JOIN {schema}.connections c ON c.id = s.connection_id
         WHERE (s.tenant_id, s.provider_slug) <> (c.tenant_id, c.provider_slug)
         LIMIT $1
        """,
    ),
)


async def check(
    tx: Transaction, rules: ScheduleRules, *, two_ticks_ago: datetime | None
) -> list[Violation]:
    """Return the invariants that are broken.

    The scheduling of connections is judged from two ticks after a scheduler began; before that,
    `two_ticks_ago` is None and nothing can be said of it.
    """
    violations = []
    for invariant in INVARIANTS:
        arguments: list[Any] = [SHOWN]
        if "$2" in invariant.query:
            if two_ticks_ago is None:
                continue
            arguments += [two_ticks_ago, _seconds(rules.maximum_interval)]
            arguments += [_seconds(rules.default_interval)]
        rows = await tx.fetch(invariant.query, *arguments, timeout=TIMEOUT_SECONDS)
        if rows:
            shown = [_readable(row) for row in rows]
            violations.append(Violation(invariant.name, invariant.sentence, shown))
    return violations


def _readable(row: Any) -> dict[str, Any]:
    return json.loads(json.dumps(dict(row), default=str))  # type: ignore[no-any-return]


def _seconds(interval: timedelta) -> int:
    return int(interval.total_seconds())
