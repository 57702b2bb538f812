"""The invariants that SQL can check while the engine runs.

Each invariant is a name, a sentence and one query that returns a few offending rows; no rows means
that it holds. One statement is one snapshot, so uncommitted work of other sessions is invisible.
Pending jobs are read whole, over partial indexes. Of finished jobs and signals, which only grow,
the newest are read, and the sentence says so.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from syncline.model import Finding
from syncline.policy.outcome import LAPSES_TO_FAIL
from syncline.policy.schedule import ScheduleRules
from syncline.store.checks.invariant import Invariant
from syncline.store.checks.politeness import POLITENESS
from syncline.store.pool import Transaction

NEWEST = 20_000
SHOWN = 20
TIMEOUT_SECONDS = 300.0
TIME_TO_REAP = timedelta(seconds=10)
TABLES = ("connections", "sync_jobs", "signals")


@dataclass(frozen=True, slots=True)
class Yardstick:
    """The values that invariants are judged by.

    `two_ticks_ago` is None until a scheduler has run for two ticks; until then, the scheduling of
    connections cannot be judged.
    """

    now: datetime
    two_ticks_ago: datetime | None
    rules: ScheduleRules
    lease: timedelta
    longest_wait: timedelta
    newest: int = NEWEST

    def measures(self, tables: Sequence[str]) -> dict[str, Any]:
        return {
            "tables": list(tables),
            "newest": self.newest,
            "two_ticks_ago": self.two_ticks_ago,
            "maximum_interval": int(self.rules.maximum_interval.total_seconds()),
            "default_interval": int(self.rules.default_interval.total_seconds()),
            "now": self.now,
            "lease": self.lease,
            "time_to_reap": TIME_TO_REAP,
            "latest_retry": self.now + self.longest_wait,
            "most_lapses": LAPSES_TO_FAIL,
        }


LAPSE = "lapse_is_reaped"
OK, BROKEN, NOT_JUDGED = "ok", "broken", "not judged"


async def judge(tx: Transaction, yardstick: Yardstick) -> list[Finding]:
    """Return a finding for each invariant."""
    measures = yardstick.measures([tx.qualified(table) for table in TABLES])
    findings = []
    for invariant in INVARIANTS:
        arguments = [measures[name] for name in invariant.arguments]
        verdict, rows = NOT_JUDGED, []
        if None not in arguments:
            found = await tx.fetch(invariant.query, SHOWN, *arguments, timeout=TIMEOUT_SECONDS)
            verdict, rows = BROKEN if found else OK, [_readable(row) for row in found]
        findings.append(Finding(invariant.name, invariant.sentence, verdict, rows))
    return findings


def has_late_reaping(findings: Sequence[Finding]) -> bool:
    return any(finding.name == LAPSE and finding.verdict == BROKEN for finding in findings)


STILL_LAPSED = """
    -- The jobs whose lease is still lapsed and whose row is not locked. A row that another
    -- transaction has locked cannot be taken over until that transaction ends.
    SELECT id FROM {schema}.sync_jobs
     WHERE id = ANY ($1::uuid[]) AND status = 'running' AND lease_expires_at < $2
       FOR UPDATE SKIP LOCKED
"""


async def excuse_held(
    tx: Transaction, findings: Sequence[Finding], *, now: datetime
) -> list[Finding]:
    """Return the findings without lapsed leases whose rows are locked against the reaper."""
    if await tx.is_read_only():
        return list(findings)  # nothing can be locked or reaped here
    judged = []
    for finding in findings:
        if finding.name == LAPSE and finding.verdict == BROKEN:
            ids = [UUID(row["id"]) for row in finding.rows]
            free = {str(row["id"]) for row in await tx.fetch(STILL_LAPSED, ids, now)}
            rows = [row for row in finding.rows if row["id"] in free]
            finding = replace(finding, verdict=BROKEN if rows else OK, rows=rows)
        judged.append(finding)
    return judged


def _readable(row: Any) -> dict[str, Any]:
    return json.loads(json.dumps(dict(row), default=str))  # type: ignore[no-any-return]


INVARIANTS = (
    *POLITENESS,
    Invariant(
        "guards_stand",
        "The unique indexes and the foreign key that enforce what follows exist and are valid.",
        ("tables",),
        """
        -- Guards that are missing or not enforced.
        SELECT guard.name AS missing
          FROM unnest(ARRAY['idx_sync_jobs_connection_type_status', 'sync_jobs_single_flight',
                            'signals_dedupe', 'connections_key', 'connections_tenant_id'])
               AS guard (name)
         WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_index i
                             JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
                            WHERE c.relname = guard.name
                              AND i.indrelid = ANY ($2::text[]::regclass[])
                              AND i.indisunique AND i.indisvalid AND i.indisready)
         UNION ALL
        SELECT 'sync_jobs_connection'
         WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_constraint
                            WHERE conname = 'sync_jobs_connection' AND convalidated
                              AND conrelid = ANY ($2::text[]::regclass[]))
         LIMIT $1
        """,
    ),
    Invariant(
        "one_pending_job",
        "A connection has at most one queued or running job of a type.",
        (),
        """
        -- Two pending jobs of a type.
        SELECT connection_id, job_type, count(*) AS jobs FROM {schema}.sync_jobs
         WHERE status IN ('queued', 'running')
         GROUP BY connection_id, job_type HAVING count(*) > 1 LIMIT $1
        """,
    ),
    Invariant(
        "single_flight",
        "A connection has at most one running job of a flight.",
        (),
        """
        -- Two running jobs of a flight.
        SELECT connection_id, flight, count(*) AS jobs FROM {schema}.sync_jobs
         WHERE status = 'running'
         GROUP BY connection_id, flight HAVING count(*) > 1 LIMIT $1
        """,
    ),
    Invariant(
        "running_has_lease",
        "A job is running if, and only if, it has a lease"
        f" (of finished jobs, the newest {NEWEST} are read).",
        ("newest",),
        """
        -- Running jobs without a lease, and others with one.
        SELECT id, connection_id, status FROM {schema}.sync_jobs
         WHERE status IN ('queued', 'running')
           AND num_nonnulls(lease_token, lease_expires_at)
               <> CASE WHEN status = 'running' THEN 2 ELSE 0 END
         UNION ALL
        SELECT id, connection_id, status
          FROM (SELECT * FROM {schema}.sync_jobs ORDER BY id DESC LIMIT $2) newest
         WHERE status NOT IN ('queued', 'running')
           AND num_nonnulls(lease_token, lease_expires_at) > 0
         LIMIT $1
        """,
    ),
    Invariant(
        "finished_has_time",
        "A job has a finish time if, and only if, it has finished"
        f" (of finished jobs, the newest {NEWEST} are read).",
        ("newest",),
        """
        -- Pending jobs with a finish time, and finished ones without.
        SELECT id, connection_id, status FROM {schema}.sync_jobs
         WHERE status IN ('queued', 'running') AND finished_at IS NOT NULL
         UNION ALL
        SELECT id, connection_id, status
          FROM (SELECT * FROM {schema}.sync_jobs ORDER BY id DESC LIMIT $2) newest
         WHERE status NOT IN ('queued', 'running') AND finished_at IS NULL LIMIT $1
        """,
    ),
    Invariant(
        "lapse_is_reaped",
        "A lapsed lease is taken over within ten seconds in which a worker claims and lives.",
        ("now", "lease", "time_to_reap"),
        """
        -- Lapsed leases older than the claim of a worker that has renewed its own since (a lease
        -- was renewed last when its full duration still lay ahead).
        SELECT late.id, late.connection_id, late.lease_expires_at FROM {schema}.sync_jobs late
         WHERE late.status = 'running' AND late.lease_expires_at < $2
           AND EXISTS (SELECT FROM {schema}.sync_jobs j
                        WHERE j.status = 'running' AND j.started_at > late.lease_expires_at
                          AND j.lease_expires_at - $3::interval - j.started_at > $4::interval)
         LIMIT $1
        """,
    ),
    Invariant(
        "poison_is_stopped",
        f"A job whose lease lapsed {LAPSES_TO_FAIL} times in a row has ended.",
        ("most_lapses",),
        """
        -- Jobs that kill workers and were not stopped.
        SELECT id, connection_id, lapses FROM {schema}.sync_jobs
         WHERE status IN ('queued', 'running') AND lapses >= $2::int LIMIT $1
        """,
    ),
    Invariant(
        "wait_is_bounded",
        "No failed job waits longer than the longest hint or backoff, with its jitter.",
        ("latest_retry",),
        """
        -- Jobs that wait longer than any backoff or hint.
        SELECT id, connection_id, attempts, retry_after FROM {schema}.sync_jobs
         WHERE status = 'queued' AND retry_after > $2 AND attempts > 0 LIMIT $1
        """,
    ),
    Invariant(
        "signal_once",
        "A connection has no two signals with the same dedupe key (`guards_stand` checks the"
        f" index that refuses them; here the newest {NEWEST} are read).",
        ("newest",),
        """
        -- Signals stored twice.
        SELECT connection_id, dedupe_key, count(*) AS signals
          FROM (SELECT * FROM {schema}.signals ORDER BY id DESC LIMIT $2) newest
         WHERE dedupe_key IS NOT NULL
         GROUP BY connection_id, dedupe_key HAVING count(*) > 1 LIMIT $1
        """,
    ),
    Invariant(
        "stream_agrees",
        "A pending stream has the cursor that its last committed page left on its connection"
        " (full syncs, and types that run side by side, cannot be judged).",
        (),
        """
        -- Streams whose job and connection have different cursors: one lost a page, or was
        -- changed by plain SQL. A later run may have moved the connection's cursor.
        SELECT j.id, j.connection_id, j.status, j.committed_pages
          FROM {schema}.sync_jobs j JOIN {schema}.connections c ON c.id = j.connection_id
         WHERE j.status IN ('queued', 'running') AND j.committed_pages > 0
           AND j.job_type <> 'full' AND j.flight = ''
           AND j.cursor IS NOT NULL AND j.cursor IS DISTINCT FROM c.metadata #> '{sync,cursor}'
           AND NOT EXISTS (SELECT FROM {schema}.sync_jobs later
                            WHERE later.connection_id = j.connection_id AND later.id <> j.id
                              AND later.started_at >= j.started_at)
         LIMIT $1
        """,
    ),
    Invariant(
        "plan_agrees",
        "A job that the scheduler made starts no later than its slot and the published jitter.",
        (),
        """
        -- Jobs of the scheduler that start later than the metadata says.
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
        "No active connection without a job has a slot that passed more than two ticks ago"
        " (except one resumed by plain SQL, until the tick sees it, and one whose row was locked"
        " at the last tick).",
        ("two_ticks_ago", "maximum_interval", "default_interval"),
        """
        -- Connections that the tick missed. The tick may not have seen an edited interval yet, so
        -- the longer of the two counts. An adaptive one is taken for the longest.
        SELECT c.id AS connection_id, done.last_finished_at, interval.seconds AS interval_seconds
          FROM {schema}.connections c
         CROSS JOIN LATERAL (
               SELECT greatest(c.last_finished_at, max(j.finished_at)) AS last_finished_at
                 FROM {schema}.sync_jobs j
                WHERE j.connection_id = c.id AND {is_completion}
                  AND j.status NOT IN ('queued', 'running')) done
         CROSS JOIN LATERAL (
               SELECT max(CASE WHEN c.metadata #> '{sync,adaptive}' IS NOT NULL THEN $3::int
                               WHEN CASE WHEN text ~ '^[0-9]{1,9}$'
                                         THEN text::int BETWEEN 60 AND $3::int END
                               THEN text::int ELSE $4::int END) AS seconds
                 FROM unnest(ARRAY[c.interval_stored, c.interval_planned]) AS text) interval
         WHERE c.status = 'active' AND c.look_at <= $2 AND c.updated_at < $2
           AND c.tenant_id NOT IN (SELECT tenant_id FROM {schema}.tenant_pauses)
           AND (c.look_at > '1970-01-01 00:00:00+00' OR done.last_finished_at IS NULL)
           AND NOT EXISTS (SELECT FROM {schema}.sync_jobs pending
                            WHERE pending.connection_id = c.id
                              AND pending.job_type = 'incremental'
                              AND pending.status IN ('queued', 'running'))
           AND coalesce(done.last_finished_at + make_interval(secs => interval.seconds),
                        c.created_at) < $2
           AND NOT EXISTS (SELECT FROM {schema}.schedulers s
                            WHERE s.ticked_at >= $2 AND c.id = ANY (s.held))
         LIMIT $1
        """,
    ),
    Invariant(
        "looked_at_in_time",
        "The tick checks a connection no later than its next slot"
        f" (the {NEWEST} that it checks last are read).",
        ("newest", "maximum_interval", "default_interval"),
        """
        -- Connections that the tick would check too late.
        SELECT c.id AS connection_id, c.look_at, done.last_finished_at
          FROM (SELECT id, look_at, last_finished_at, interval_stored, interval_planned,
                       metadata #> '{sync,adaptive}' IS NOT NULL AS is_adaptive
                  FROM {schema}.connections WHERE status = 'active'
                 ORDER BY look_at DESC, id DESC LIMIT $2) c
         CROSS JOIN LATERAL (
               SELECT greatest(c.last_finished_at, max(j.finished_at)) AS last_finished_at
                 FROM {schema}.sync_jobs j
                WHERE j.connection_id = c.id AND {is_completion}
                  AND j.status NOT IN ('queued', 'running')) done
         WHERE c.interval_stored IS NOT DISTINCT FROM c.interval_planned
           AND NOT EXISTS (SELECT FROM {schema}.sync_jobs pending
                            WHERE pending.connection_id = c.id
                              AND pending.job_type = 'incremental'
                              AND pending.status IN ('queued', 'running'))
           AND c.look_at > done.last_finished_at + make_interval(secs =>
                   CASE WHEN c.is_adaptive THEN $3::int
                        WHEN CASE WHEN c.interval_stored ~ '^[0-9]{1,9}$'
                                  THEN c.interval_stored::int BETWEEN 60 AND $3::int END
                        THEN c.interval_stored::int ELSE $4::int END)
         LIMIT $1
        """,
    ),
    Invariant(
        "tenants_agree",
        "A job and a signal belong to the tenant and the provider of their connection"
        f" (the newest {NEWEST} of each are read).",
        ("newest",),
        """
        -- Rows whose connection belongs to another tenant or provider.
        SELECT kind, row.id, row.tenant_id, c.tenant_id AS connection_tenant,
               row.provider_slug, c.provider_slug AS connection_provider
          FROM ((SELECT 'job' AS kind, id, tenant_id, provider_slug, connection_id
                   FROM {schema}.sync_jobs ORDER BY id DESC LIMIT $2)
                 UNION ALL
                (SELECT 'signal', id, tenant_id, provider_slug, connection_id
                   FROM {schema}.signals ORDER BY id DESC LIMIT $2)) row
          JOIN {schema}.connections c ON c.id = row.connection_id
         WHERE (row.tenant_id, row.provider_slug) <> (c.tenant_id, c.provider_slug)
         LIMIT $1
        """,
    ),
)
