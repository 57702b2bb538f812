"""Budgets and their buckets: read and set the former, take calls out of the latter."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from syncline.policy.budgets import Bucket, Budget, Source
from syncline.store.pool import Transaction

READ = """
    -- Every budget, of each source; and what is left where all share one bucket.
    SELECT budget.scope, budget.source, budget.calls, budget.per_seconds, budget.burst,
           budget.providers, budget.is_reported, bucket.tokens, bucket.counted_at,
           bucket.left_calls, bucket.left_until, bucket.window_at, bucket.window_taken
      FROM {schema}.budgets budget
      LEFT JOIN {schema}.budget_buckets bucket
             ON bucket.scope = budget.scope AND bucket.member = ''
     ORDER BY budget.scope, budget.source
"""


async def read(tx: Transaction) -> tuple[list[Budget], dict[str, Bucket]]:
    """Return all budgets, and by scope the buckets that all members share."""
    rows = await tx.fetch(READ)
    budgets = [
        Budget(
            row["scope"],
            row["calls"],
            timedelta(seconds=row["per_seconds"]),
            row["burst"],
            tuple(row["providers"]),
            Source(row["source"]),
            row["is_reported"],
        )
        for row in rows
    ]
    shared = {row["scope"]: _bucket(row, "") for row in rows if row["counted_at"] is not None}
    return budgets, shared


READ_BUCKETS = """
    -- The buckets of these members.
    SELECT scope, member, tokens, counted_at, left_calls, left_until, window_at, window_taken
      FROM {schema}.budget_buckets
     WHERE (scope, member) IN (SELECT * FROM unnest($1::text[], $2::text[]))
"""


async def read_buckets(tx: Transaction, members: Sequence[tuple[str, str]]) -> list[Bucket]:
    scopes, names = [scope for scope, _ in members], [name for _, name in members]
    return [_bucket(row, row["member"]) for row in await tx.fetch(READ_BUCKETS, scopes, names)]


def _bucket(row: Any, member: str) -> Bucket:
    return Bucket(
        row["scope"],
        member,
        row["tokens"],
        row["counted_at"],
        row["left_calls"],
        row["left_until"],
        row["window_at"],
        row["window_taken"],
    )


SET = """
    -- Set the budgets of a source.
    INSERT INTO {schema}.budgets AS budget
           (scope, source, calls, per_seconds, burst, providers, is_reported, set_at)
    SELECT given.scope, $2, given.calls, given.per_seconds, given.burst,
           string_to_array(given.providers, E'\\n'), given.is_reported, $3
      FROM unnest($1::text[], $4::bigint[], $5::float8[], $6::bigint[], $7::text[], $8::bool[])
           AS given (scope, calls, per_seconds, burst, providers, is_reported)
     ORDER BY given.scope
        ON CONFLICT (scope, source) DO UPDATE
       SET calls = excluded.calls, per_seconds = excluded.per_seconds, burst = excluded.burst,
           providers = excluded.providers, is_reported = excluded.is_reported,
           set_at = excluded.set_at
     WHERE (budget.calls, budget.per_seconds, budget.burst, budget.providers, budget.is_reported)
           IS DISTINCT FROM
           (excluded.calls, excluded.per_seconds, excluded.burst, excluded.providers,
            excluded.is_reported)
 RETURNING budget.scope
"""


async def set_all(
    tx: Transaction, source: Source, budgets: Sequence[Budget], *, now: datetime
) -> list[str]:
    """Set budgets; return the scopes of those that were other before, or new."""
    given = {budget.scope: budget for budget in budgets}  # a statement cannot set a row twice
    rows = await tx.fetch(
        SET,
        list(given),
        source,
        now,
        [budget.calls for budget in given.values()],
        [budget.per.total_seconds() for budget in given.values()],
        [budget.burst for budget in given.values()],
        ["\n".join(budget.providers) for budget in given.values()],
        [budget.is_reported for budget in given.values()],
    )
    return [row["scope"] for row in rows]


CLEAR = """
    -- Remove the budgets of some sources: of one scope, or of all but those that are named.
    DELETE FROM {schema}.budgets
     WHERE source = ANY ($1::text[]) AND ($2::text IS NULL OR scope = $2)
       AND scope <> ALL ($3::text[])
 RETURNING scope, source
"""


async def clear(
    tx: Transaction,
    sources: Iterable[Source],
    scope: str | None = None,
    *,
    but: Iterable[str] = (),
) -> list[tuple[str, Source]]:
    """Remove budgets, and return their scopes and sources. What is left of them stays known."""
    rows = await tx.fetch(CLEAR, list(sources), scope, list(but))
    return [(row["scope"], Source(row["source"])) for row in rows]


TAKE = """
    -- Take calls out of buckets: as many as are needed, if there are, and of those that are wanted
    -- beyond that up to a quarter of what is there, because other processes want some too. Calls
    -- that were made without having been taken ("spent") may lead below zero. Calls that were
    -- taken and not made are put back, unless the bucket has been full since then: it would now
    -- hold more than it would if they had never been taken. What the provider says that it has
    -- left lowers what we have left, and never raises it. A bucket that was counted well ahead of
    -- now was counted before the clock went back.
    WITH moment AS MATERIALIZED (
        SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
    ), asked AS MATERIALIZED (
        SELECT * FROM unnest($2::text[], $3::text[], $4::int[], $5::int[], $6::int[], $7::int[],
                             $8::timestamptz[], $9::float8[], $10::float8[], $11::float8[],
                             $12::bigint[], $13::float8[], $14::float8[])
            AS asked (scope, member, needed, wanted, spent, unused, unused_since, said_left,
                      said_seconds, capacity, calls, rate, per_seconds)
    ), locked AS MATERIALIZED (
        SELECT asked.*, bucket.tokens, bucket.counted_at AS last_counted_at, bucket.clipped_at,
               bucket.left_calls, bucket.left_until, bucket.window_at, bucket.window_taken,
               (bucket.window_calls, bucket.window_seconds) <> (asked.calls, asked.per_seconds)
                   AS is_changed
          FROM {schema}.budget_buckets bucket
          JOIN asked ON asked.scope = bucket.scope AND asked.member = bucket.member
         ORDER BY bucket.scope, bucket.member
           FOR NO KEY UPDATE OF bucket
    ), timed AS (
        SELECT locked.*, moment.now,
               last_counted_at > moment.now + interval '5 seconds' AS went_back,
               greatest(last_counted_at, moment.now) AS counted_at,
               tokens + rate * greatest(0, extract(epoch FROM moment.now - last_counted_at))
                   AS flowed
          FROM locked CROSS JOIN moment
    ), filled AS (
        SELECT timed.*,
               CASE WHEN flowed >= capacity OR went_back THEN now ELSE clipped_at END AS clipped,
               least(capacity, flowed + CASE WHEN flowed < capacity AND NOT went_back
                                                  AND clipped_at <= unused_since
                                             THEN unused ELSE 0 END) AS level,
               went_back OR is_changed OR now >= window_at + make_interval(secs => per_seconds)
                   AS is_new_window,
               CASE WHEN said_left IS NULL THEN false
                    WHEN left_until > now THEN said_left < left_calls
                    ELSE true END AS is_lower
          FROM timed
    ), told AS (
        SELECT filled.*,
               CASE WHEN is_lower THEN said_left WHEN left_until > now THEN left_calls END AS most,
               CASE WHEN is_lower THEN now + make_interval(secs => said_seconds)
                    WHEN left_until > now THEN left_until END AS until
          FROM filled
    ), decided AS (
        SELECT told.*, greatest(0, least(room, greatest(needed, least(wanted, needed
                           + floor(greatest(0, room - needed) / 4)))))::int AS taken
          FROM told
         CROSS JOIN LATERAL (SELECT floor(least(level, coalesce(most, level)))) AS whole (room)
    ), counted AS (
        SELECT decided.*, greatest(-calls, level - taken - spent) AS tokens_left,
               CASE WHEN is_new_window THEN now ELSE window_at END AS begun_at,
               CASE WHEN is_new_window THEN taken
                    WHEN window_at <= unused_since THEN greatest(0, window_taken + taken - unused)
                    ELSE window_taken + taken END AS taken_since,
               CASE WHEN went_back THEN now ELSE counted_at END AS new_counted_at
          FROM decided
    ), known AS (
        SELECT counted.*, greatest(now + make_interval(secs => (capacity - tokens_left) / rate),
                                   until) AS full_again_at
          FROM counted
    )
    UPDATE {schema}.budget_buckets bucket
       SET tokens = known.tokens_left, capacity = known.capacity,
           counted_at = known.new_counted_at, clipped_at = known.clipped,
           full_at = known.full_again_at, left_calls = known.most - known.taken,
           left_until = known.until, window_at = known.begun_at, window_taken = known.taken_since,
           window_calls = known.calls, window_seconds = known.per_seconds
      FROM known
     WHERE bucket.scope = known.scope AND bucket.member = known.member
 RETURNING bucket.scope, bucket.member, known.taken, bucket.tokens, bucket.left_calls,
           known.now, bucket.left_until
"""

# Passes over buckets that somebody else is taking from.
TAKE_FREE = TAKE.replace("FOR NO KEY UPDATE OF bucket", "FOR NO KEY UPDATE OF bucket SKIP LOCKED")

FILL = """
    -- Make full buckets for those who have none.
    INSERT INTO {schema}.budget_buckets
           (scope, member, tokens, capacity, counted_at, clipped_at, full_at, window_at,
            window_calls, window_seconds)
    SELECT asked.scope, asked.member, asked.capacity, asked.capacity, $1, $1, $1, $1, asked.calls,
           asked.per_seconds
      FROM unnest($2::text[], $3::text[], $4::float8[], $5::bigint[], $6::float8[])
           AS asked (scope, member, capacity, calls, per_seconds)
     ORDER BY asked.scope, asked.member
        ON CONFLICT (scope, member) DO NOTHING
"""


@dataclass(slots=True)
class Taking:
    """What a process asks of one bucket, and what it tells about it."""

    budget: Budget
    member: str = ""
    needed: int = 0
    wanted: int = 0
    spent: int = 0
    unused: int = 0
    unused_since: datetime | None = None
    said_left: float | None = None
    said_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Taken:
    """What a process got out of a bucket, and what is left in it."""

    scope: str
    member: str
    taken: int
    tokens: float
    left_calls: float | None
    now: datetime
    left_until: datetime | None


async def take(
    tx: Transaction, takings: Sequence[Taking], *, now: datetime | None, waits: bool = True
) -> dict[tuple[str, str], Taken]:
    """Take calls out of buckets, in one statement; return what each gave.

    Without `waits`, a bucket that another transaction holds is left out.
    """
    statement = TAKE if waits else TAKE_FREE
    found = await _take(tx, statement, takings, now)
    missing = [one for one in takings if (one.budget.scope, one.member) not in found]
    if missing:
        made_at = now or await tx.database_time()
        await tx.execute(
            FILL,
            made_at,
            [one.budget.scope for one in missing],
            [one.member for one in missing],
            [float(one.budget.capacity) for one in missing],
            [one.budget.calls for one in missing],
            [one.budget.per.total_seconds() for one in missing],
        )
        found |= await _take(tx, statement, missing, now)
    return found


async def _take(
    tx: Transaction, statement: str, takings: Sequence[Taking], now: datetime | None
) -> dict[tuple[str, str], Taken]:
    budgets = [one.budget for one in takings]
    rows = await tx.fetch(
        statement,
        now,
        [budget.scope for budget in budgets],
        [one.member for one in takings],
        [one.needed for one in takings],
        [one.wanted for one in takings],
        [one.spent for one in takings],
        [one.unused for one in takings],
        [one.unused_since for one in takings],
        [one.said_left for one in takings],
        [one.said_seconds for one in takings],
        [float(budget.capacity) for budget in budgets],
        [budget.calls for budget in budgets],
        [budget.rate for budget in budgets],
        [budget.per.total_seconds() for budget in budgets],
    )
    return {(row["scope"], row["member"]): Taken(*row) for row in rows}


FORGET_REMAINDERS = """
    -- Forget what the provider said that it has left.
    UPDATE {schema}.budget_buckets SET left_calls = NULL, left_until = NULL
     WHERE scope = $1 AND left_until IS NOT NULL
"""


async def forget_remainders(tx: Transaction, scope: str) -> int:
    return await tx.execute(FORGET_REMAINDERS, scope)


END_DEFERRALS = """
    -- Let jobs of these providers be claimed that were put off for longer: there may be room now.
    WITH put_off AS MATERIALIZED (
        SELECT id FROM {schema}.sync_jobs
         WHERE provider_slug = ANY ($1::text[]) AND status = 'queued' AND retry_after > $2
           AND deferred_until = retry_after
         ORDER BY id
         LIMIT $3
           FOR NO KEY UPDATE SKIP LOCKED
    )
    UPDATE {schema}.sync_jobs j SET retry_after = $2, updated_at = now()
      FROM put_off
     WHERE j.id = put_off.id
"""


async def end_deferrals(
    tx: Transaction, providers: Sequence[str], *, now: datetime, limit: int
) -> int:
    return await tx.execute(END_DEFERRALS, providers, now, limit)


REMOVE_FULL = """
    -- Remove buckets that are full again, which are as good as none. Those that all members of a
    -- budget share are kept as long as there is a budget, because people look at them.
    WITH full_ones AS MATERIALIZED (
        SELECT bucket.scope, bucket.member FROM {schema}.budget_buckets bucket
         WHERE bucket.full_at < $1
           AND (bucket.member <> '' OR NOT EXISTS (
                   SELECT FROM {schema}.budgets budget WHERE budget.scope = bucket.scope))
         ORDER BY bucket.scope, bucket.member
         LIMIT $2
           FOR UPDATE SKIP LOCKED
    )
    DELETE FROM {schema}.budget_buckets bucket USING full_ones
     WHERE bucket.scope = full_ones.scope AND bucket.member = full_ones.member
"""


async def remove_full(tx: Transaction, *, now: datetime, limit: int) -> int:
    return await tx.execute(REMOVE_FULL, now, limit)
