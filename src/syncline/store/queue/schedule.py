"""What a tick reads and writes: lock what may be due, read it, save what was planned."""

import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from syncline.policy.schedule import Candidate, Pull, RunPlan, ScheduleRules, StoredSync
from syncline.store.pool import Transaction
from syncline.text import rfc3339

BEFORE_ALL = UUID(int=0)
BEGINNING = (datetime(1, 1, 1, tzinfo=UTC), BEFORE_ALL)
CHAPTER = 100_000  # connections that a tick puts in order at a time
EDITED_AT_ONCE = 1000


class Due(NamedTuple):
    """Connections that may be due, in the order of their ids, and where the next ones begin."""

    ids: list[UUID]
    after: tuple[datetime, UUID]


NEXT_DUE = """
    -- The next connections that are to be checked by then. In the order of ids, neighbours share
    -- pages of the table and of every index: at half a million connections each takes the server
    -- 51 µs, and 73 µs in the order of time.
    SELECT array_agg(id ORDER BY id) AS ids, max(look_at) AS next_check_at,
           (array_agg(id ORDER BY look_at DESC, id DESC))[1] AS last
      FROM (SELECT look_at, id FROM {schema}.connections
             WHERE status = 'active' AND look_at BETWEEN $2 AND $1 AND (look_at, id) > ($2, $3)
             ORDER BY look_at, id LIMIT $4) AS next
"""


NEXT_DUE_BUT = """
    -- The same without the connections of paused tenants, which stay due. A statement of its own,
    -- because the other one reads the index alone.
    SELECT array_agg(id ORDER BY id) AS ids, max(look_at) AS next_check_at,
           (array_agg(id ORDER BY look_at DESC, id DESC))[1] AS last
      FROM (SELECT look_at, id FROM {schema}.connections
             WHERE status = 'active' AND look_at BETWEEN $2 AND $1 AND (look_at, id) > ($2, $3)
               AND tenant_id <> ALL ($5::text[])
             ORDER BY look_at, id LIMIT $4) AS next
"""


async def next_due(
    tx: Transaction,
    *,
    until: datetime,
    after: tuple[datetime, UUID] | None,
    limit: int = CHAPTER,
    paused: Sequence[str] = (),
) -> Due | None:
    """Return the next chapter of what is to be checked by then; None if nothing is left.

    Connections of paused tenants are left out.
    """
    place = (until, *(after or BEGINNING), limit)
    if paused:
        row = await tx.fetchrow(NEXT_DUE_BUT, *place, paused)
    else:
        row = await tx.fetchrow(NEXT_DUE, *place)
    return Due(row["ids"], (row["next_check_at"], row["last"])) if row["ids"] else None


class LockedBatch(NamedTuple):
    """Locked ids, last id scanned, whether more remain, ids skipped.

    A connection is skipped if another transaction holds it, or if it is no longer due.
    """

    ids: list[UUID]
    last_scanned: UUID
    has_more: bool
    skipped: Sequence[UUID] = ()


class LockNext(Protocol):
    """Locks the next connections after an id."""

    async def __call__(self, tx: Transaction, *, after: UUID, limit: int) -> LockedBatch: ...


LOCK_DUE = """
    -- Lock those of these connections that are still due and not locked. Return NULL
    -- if that is all of them, else their ids.
    WITH locked AS MATERIALIZED (
         SELECT id FROM {schema}.connections
          WHERE id = ANY ($1::uuid[]) AND status = 'active' AND look_at <= $2
          ORDER BY id
            FOR UPDATE SKIP LOCKED)
    SELECT CASE WHEN count(*) < cardinality($1::uuid[])
                THEN coalesce(array_agg(id ORDER BY id), '{}') END
      FROM locked
"""


@dataclass(frozen=True, slots=True)
class DueConnections:
    """Connections that may be due by the horizon, in the order of their ids."""

    ids: list[UUID]
    horizon: datetime

    async def lock(self, tx: Transaction, *, after: UUID, limit: int) -> LockedBatch:
        """Lock the next ones that are still due and that no other transaction holds."""
        start = bisect_right(self.ids, after) if after != BEFORE_ALL else 0
        ids, has_more = self.ids[start : start + limit], start + limit < len(self.ids)
        locked = await tx.fetchval(LOCK_DUE, ids, self.horizon)
        if locked is None:
            return LockedBatch(ids, ids[-1], has_more)
        return LockedBatch(locked, ids[-1], has_more, sorted(set(ids).difference(locked)))


BRING_CHECKS_BACK = """
    -- Check connections at once whose check is too far off, because the clock was ahead. They are
    -- at the far end of the index; usually there are none, and nothing else is read.
    WITH ahead AS MATERIALIZED (
        SELECT id FROM {schema}.connections WHERE status = 'active' AND look_at > $1
         ORDER BY look_at DESC, id DESC LIMIT $2
           FOR UPDATE SKIP LOCKED
    )
    UPDATE {schema}.connections c SET look_at = '1970-01-01 00:00:00+00'
      FROM ahead WHERE c.id = ANY (ARRAY[ahead.id])
"""


async def bring_checks_back(tx: Transaction, *, after: datetime, limit: int) -> int:
    """Return how many checks were brought back."""
    return await tx.execute(BRING_CHECKS_BACK, after, limit)


LOCK_EDITED = """
    -- Lock the next connections whose interval has changed since their last plan.
    SELECT id FROM {schema}.connections
     WHERE status = 'active' AND interval_stored IS DISTINCT FROM interval_planned AND id > $1
       AND tenant_id NOT IN (SELECT tenant_id FROM {schema}.tenant_pauses)
     ORDER BY id LIMIT $2
       FOR UPDATE SKIP LOCKED
"""


async def lock_edited(tx: Transaction, *, after: UUID, limit: int) -> LockedBatch:
    """Lock edited connections; those of paused tenants wait until they are resumed."""
    return _locked(await tx.fetch(LOCK_EDITED, after, limit), after, limit)


LOCK_LEFT = """
    -- Lock the next connections that left active by plain SQL and may still have queued jobs.
    SELECT id FROM {schema}.connections
     WHERE status <> 'active' AND look_at > '0002-01-01 00:00:00+00' AND id > $1
     ORDER BY id LIMIT $2
       FOR UPDATE SKIP LOCKED
"""


async def lock_left(tx: Transaction, *, after: UUID, limit: int) -> LockedBatch:
    return _locked(await tx.fetch(LOCK_LEFT, after, limit), after, limit)


def _locked(rows: Sequence[Any], after: UUID, limit: int) -> LockedBatch:
    ids = [row["id"] for row in rows]
    return LockedBatch(ids, ids[-1] if ids else after, len(ids) == limit)


READ_CANDIDATES = """
    -- What the plan of a locked connection needs, in the order of the fields of Candidate. This is
    -- a statement of its own, so its snapshot begins after the locks were taken, and sees whatever
    -- another process settled.
    SELECT c.id, c.tenant_id, c.provider_slug,
           CASE WHEN greatest(c.last_finished_at, done.finished_at) IS NULL
                THEN c.created_at END AS created_at,
           greatest(c.last_finished_at, done.finished_at) AS last_finished_at,
           EXISTS (SELECT FROM {schema}.sync_jobs pending
                    WHERE pending.connection_id = c.id AND pending.job_type = 'incremental'
                      AND pending.status IN ('queued', 'running') OFFSET 0) AS has_pending_job,
           jsonb_typeof(c.metadata) AS metadata_kind,
           jsonb_typeof(c.metadata -> 'sync') AS sync_kind,
           c.interval_stored,
           left((c.metadata #> '{sync,next_run_at}')::text, 64) AS next_run_at,
           left((c.metadata #> '{sync,last_jitter_seconds}')::text, 64) AS last_jitter_seconds,
           left((c.metadata #> '{sync,first_activated_at}')::text, 64) AS first_activated_at,
           CASE WHEN c.metadata #> '{sync,adaptive}' IS NOT NULL THEN jsonb_build_array(
                left((c.metadata #> '{sync,adaptive}')::text, 1000),
                left((c.metadata #> '{sync,effective_interval_seconds}')::text, 64),
                done.status, done.is_empty)::text END AS cadence,
           c.interval_planned,
           CASE WHEN greatest(c.last_finished_at, done.finished_at) > c.look_at
                THEN c.look_at END AS next_check_at
      FROM unnest($1::uuid[]) WITH ORDINALITY AS picked (id, place)
      JOIN {schema}.connections c ON c.id = picked.id
      LEFT JOIN LATERAL (
           SELECT j.finished_at, j.status, j.is_empty FROM {schema}.sync_jobs j
            WHERE j.connection_id = c.id AND {is_completion}
              AND j.status IN ('succeeded', 'completed', 'failed', 'cancelled')
            ORDER BY j.finished_at DESC LIMIT 1) done ON true
     ORDER BY picked.place
"""


async def read_candidates(tx: Transaction, ids: Sequence[UUID]) -> Iterator[Candidate]:
    """Return the candidates one at a time, so that few objects live at once."""
    rows = await tx.fetch(READ_CANDIDATES, ids)
    return (Candidate._make((*row[:6], StoredSync._make(row[6:13]), *row[13:])) for row in rows)


SAVE_PLANS = """
    -- Publish the plans of the jobs just inserted: single keys change, everything else stays. The
    -- planned interval is the stored one, or the default that replaces a bad one. The reason of an
    -- earlier status is cleared, because plain SQL that makes a connection active leaves it.
    UPDATE {schema}.connections c
       SET metadata = jsonb_set({schema}.object_or_empty(c.metadata), '{sync}',
                                {schema}.object_or_empty(c.metadata -> 'sync') || plan.patch),
           look_at = plan.next_check_at, last_finished_at = plan.last_finished_at, updated_at = $5,
           status_reason = NULL,
           interval_planned = coalesce(plan.patch ->> 'interval_seconds', c.interval_stored)
      FROM unnest($1::uuid[], $2::jsonb[], $3::timestamptz[], $4::timestamptz[])
           AS plan (id, patch, next_check_at, last_finished_at)
     WHERE c.id = plan.id
"""


async def save_plans(tx: Transaction, plans: Sequence[RunPlan], *, now: datetime) -> int:
    return await tx.execute(
        SAVE_PLANS,
        [plan.connection_id for plan in plans],
        [_patch(plan) for plan in plans],
        [plan.next_check_at for plan in plans],
        [plan.last_finished_at for plan in plans],
        now,
    )


def _patch(plan: RunPlan) -> str:
    """Return the keys of `metadata.sync` that a plan sets, as JSON.

    A tick does this for every connection, and `json.dumps` takes three times as long. No value
    needs an escape.
    """
    more = ""
    if plan.is_adaptive:
        more = f', "effective_interval_seconds": {int(plan.interval.total_seconds())}'
    elif plan.repairs_interval:
        more = f', "interval_seconds": {int(plan.interval.total_seconds())}'
    return (
        f'{{"next_run_at": "{rfc3339(plan.next_run_at)}", '
        f'"last_jitter_seconds": {plan.jitter_seconds}{more}}}'
    )


PUBLISH_NEXT_RUNS = """
    -- Publish when the run after one that was pulled forward is due.
    UPDATE {schema}.connections c
       SET metadata = jsonb_set({schema}.object_or_empty(c.metadata), '{sync}',
                                {schema}.object_or_empty(c.metadata -> 'sync') || next.patch),
           updated_at = $3
      FROM unnest($1::uuid[], $2::jsonb[]) AS next (id, patch)
     WHERE c.id = next.id
"""


async def publish_next_runs(tx: Transaction, pulls: Sequence[Pull], *, now: datetime) -> int:
    return await tx.execute(
        PUBLISH_NEXT_RUNS,
        [pull.connection_id for pull in pulls],
        [json.dumps({"next_run_at": rfc3339(pull.next_run_at)}) for pull in pulls],
        now,
    )


CHECK_LATER = """
    -- Set the next check of connections that have nothing to schedule now. It was decided with the
    -- interval that is stored.
    UPDATE {schema}.connections c
       SET look_at = later.next_check_at, interval_planned = c.interval_stored, status_reason = NULL
      FROM unnest($1::uuid[], $2::timestamptz[]) AS later (id, next_check_at)
     WHERE c.id = later.id
"""


async def check_later(tx: Transaction, next_checks: Sequence[tuple[UUID, datetime]]) -> int:
    """Set when each connection is checked next; return how many were set."""
    ids, next_check_at = zip(*next_checks, strict=True)
    return await tx.execute(CHECK_LATER, ids, next_check_at)


NEXT_EDITED = """
    -- The next connections whose interval has changed since their last plan.
    SELECT look_at AS next_check_at, id FROM {schema}.connections
     WHERE status = 'active' AND interval_stored IS DISTINCT FROM interval_planned AND id > $1
       AND tenant_id NOT IN (SELECT tenant_id FROM {schema}.tenant_pauses)
     ORDER BY id LIMIT $2
"""


async def still_edited(tx: Transaction, *, horizon: datetime) -> list[UUID]:
    """Return the edited connections that a tick skipped and that are not checked by the horizon."""
    found, last = [], BEFORE_ALL
    while page := await tx.fetch(NEXT_EDITED, last, EDITED_AT_ONCE):
        found += [row["id"] for row in page if row["next_check_at"] > horizon]
        last = page[-1]["id"]
    return found


COUNT_OVERDUE = """
    -- How many of these have no pending job although their slot has passed. The interval is read as
    -- policy.schedule reads it; a test compares the two. An adaptive one is taken for the longest.
    SELECT count(*) FROM unnest($1::uuid[]) AS candidate (id)
     CROSS JOIN LATERAL (SELECT interval_stored, last_finished_at,
                                metadata #> '{sync,adaptive}' IS NOT NULL AS is_adaptive
                           FROM {schema}.connections
                          WHERE id = candidate.id AND status = 'active' OFFSET 0) c
      LEFT JOIN LATERAL (
           SELECT j.finished_at FROM {schema}.sync_jobs j
            WHERE j.connection_id = candidate.id AND {is_completion}
              AND j.status IN ('succeeded', 'completed', 'failed', 'cancelled')
            ORDER BY j.finished_at DESC LIMIT 1) done ON true
     WHERE NOT EXISTS (SELECT FROM {schema}.sync_jobs pending
                        WHERE pending.connection_id = candidate.id
                          AND pending.job_type = 'incremental'
                          AND pending.status IN ('queued', 'running') OFFSET 0)
       AND coalesce(greatest(c.last_finished_at, done.finished_at) + make_interval(secs =>
               CASE WHEN c.is_adaptive THEN $3
                    WHEN CASE WHEN c.interval_stored ~ '^[0-9]{1,9}$'
                              THEN c.interval_stored::int BETWEEN 60 AND $3 END
                    THEN c.interval_stored::int ELSE $4 END) <= $2, true)
"""


async def count_overdue(
    tx: Transaction, ids: Sequence[UUID], rules: ScheduleRules, *, now: datetime
) -> int:
    """Return how many of these connections are active and overdue."""
    if not ids:
        return 0
    maximum, default = rules.maximum_interval, rules.default_interval
    seconds = int(maximum.total_seconds()), int(default.total_seconds())
    count: int = await tx.fetchval(COUNT_OVERDUE, ids, now, *seconds)
    return count
