"""Gates of providers: paused, closed by a limit, open because the provider is down."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from syncline.policy.breaker import Tally
from syncline.policy.gates import Gate
from syncline.policy.ramp import KEPT_HISTORY, LASTS, LONGEST_HISTORY, History
from syncline.store.pool import Transaction

READ = """
    -- Every gate; where all is well there is none.
    SELECT provider_slug, paused_at, paused_because, closed_until, opened_at, opened_because,
           probe_at, probe_seconds, probed_until, ramp_from, ramp_rate, ramp_taken
      FROM {schema}.gates
"""


async def read(tx: Transaction) -> list[Gate]:
    return [Gate(**row) for row in await tx.fetch(READ)]


READ_ONE = """
    -- The gate of one provider.
    SELECT provider_slug, paused_at, paused_because, closed_until, opened_at, opened_because,
           probe_at, probe_seconds, probed_until, ramp_from, ramp_rate, ramp_taken
      FROM {schema}.gates WHERE provider_slug = $1
"""


async def read_one(tx: Transaction, provider_slug: str) -> Gate | None:
    row = await tx.fetchrow(READ_ONE, provider_slug)
    return Gate(**row) if row is not None else None


PAUSE = """
    -- Pause a provider; one that is paused already keeps its time.
    INSERT INTO {schema}.gates AS gate (provider_slug, paused_at, paused_because)
    VALUES ($1, $2, $3)
        ON CONFLICT (provider_slug) DO UPDATE
       SET paused_at = coalesce(gate.paused_at, excluded.paused_at),
           paused_because = coalesce(excluded.paused_because, gate.paused_because)
"""

RESUME = """
    -- Let a provider be called again, whatever its gate was closed for; slowly at first, if it has
    -- a usual rate ($3). Else the gate is removed as passed.
    UPDATE {schema}.gates
       SET paused_at = NULL, paused_because = NULL, closed_until = NULL, opened_at = NULL,
           opened_because = NULL, probe_at = NULL, probe_seconds = NULL, probed_until = NULL,
           ramp_from = CASE WHEN $3::float8 IS NOT NULL THEN $2::timestamptz END,
           ramp_rate = $3, ramp_taken = 0
     WHERE provider_slug = $1
"""


async def pause(tx: Transaction, provider_slug: str, because: str | None, *, now: datetime) -> None:
    await tx.execute(PAUSE, provider_slug, now, because)


async def resume(tx: Transaction, provider_slug: str, *, now: datetime, rate: float | None) -> bool:
    """Return whether there was a gate."""
    await forget_reports(tx, provider_slug)
    had_gate = await tx.execute(RESUME, provider_slug, now, rate) == 1
    await remove_passed(tx, now=now)
    return had_gate


NOTE_LIMITED = """
    -- Note that a provider limits these connections, and forget what was noted long ago.
    WITH forgotten AS (
        DELETE FROM {schema}.limited_connections
         WHERE provider_slug = ANY ($1::text[]) AND limited_at < $5
           AND connection_id <> ALL ($2::uuid[])
    )
    INSERT INTO {schema}.limited_connections AS noted
           (provider_slug, connection_id, limited_at, limited_until)
    SELECT slug, id, $4, until
      FROM unnest($1::text[], $2::uuid[], $3::timestamptz[]) AS limited (slug, id, until)
     ORDER BY slug, id
        ON CONFLICT (provider_slug, connection_id) DO UPDATE
       SET limited_at = excluded.limited_at, limited_until = excluded.limited_until
"""

READ_LIMITED = """
    -- Of each of these providers, how many connections were limited lately, and until when.
    SELECT provider_slug, count(*) AS connections, max(limited_until) AS limited_until
      FROM {schema}.limited_connections
     WHERE provider_slug = ANY ($1::text[]) AND limited_at >= $2
     GROUP BY provider_slug
"""

CLOSE_UNTIL = """
    -- Close a provider for everybody; it is never opened sooner than before. Then its jobs start
    -- slowly, if it has a usual rate.
    INSERT INTO {schema}.gates AS gate (provider_slug, closed_until, ramp_from, ramp_rate)
    VALUES ($1, $2::timestamptz, CASE WHEN $3::float8 IS NOT NULL THEN $2::timestamptz END, $3)
        ON CONFLICT (provider_slug) DO UPDATE
       SET closed_until = greatest(gate.closed_until, excluded.closed_until),
           ramp_from = CASE WHEN excluded.ramp_rate IS NOT NULL
                            THEN greatest(gate.closed_until, excluded.closed_until) END,
           ramp_rate = excluded.ramp_rate, ramp_taken = 0
"""


async def note_limited(
    tx: Transaction,
    limited: Iterable[tuple[str, UUID, datetime]],
    *,
    now: datetime,
    within: timedelta,
) -> None:
    """Note connections that a provider limits, and until when."""
    # One row per connection: a statement cannot change a row twice.
    latest = {(slug, id_): until for slug, id_, until in limited}
    slugs = [slug for slug, _ in latest]
    ids = [id_ for _, id_ in latest]
    await tx.execute(NOTE_LIMITED, slugs, ids, list(latest.values()), now, now - within)


async def count_limited(
    tx: Transaction, slugs: Collection[str], *, since: datetime
) -> dict[str, tuple[int, datetime]]:
    """Return how many connections each provider has limited lately, and until when.

    Two processes that note and count in one transaction each would not see each other's.
    """
    rows = await tx.fetch(READ_LIMITED, list(slugs), since)
    return {row["provider_slug"]: (row["connections"], row["limited_until"]) for row in rows}


async def close_until(
    tx: Transaction, provider_slug: str, until: datetime, *, rate: float | None
) -> None:
    await tx.execute(CLOSE_UNTIL, provider_slug, until, rate)


REPORT = """
    -- What this process saw of providers that fail.
    INSERT INTO {schema}.gate_reports
           (provider_slug, process_id, reported_at, attempts, failures, connections)
    VALUES ($1, $2, $3, $4, $5, $6)
        ON CONFLICT (provider_slug, process_id) DO UPDATE
       SET reported_at = excluded.reported_at, attempts = excluded.attempts,
           failures = excluded.failures, connections = excluded.connections
"""

TALLIES = """
    -- What all processes reported lately.
    SELECT provider_slug, sum(attempts) AS attempts, sum(failures) AS failures,
           (SELECT count(DISTINCT id) FROM {schema}.gate_reports other, unnest(other.connections) id
             WHERE other.provider_slug = report.provider_slug AND other.reported_at >= $1)
           AS connections
      FROM {schema}.gate_reports report
     WHERE reported_at >= $1
     GROUP BY provider_slug
"""

FORGET_REPORTS = """
    -- Forget what was reported of a provider, or by processes that are gone. A process that reports
    -- at this moment may wait for the gate that this transaction has opened: its row stays.
    DELETE FROM {schema}.gate_reports
     WHERE (provider_slug, process_id) IN (
           SELECT provider_slug, process_id FROM {schema}.gate_reports
            WHERE provider_slug = $1 OR reported_at < $2
              FOR UPDATE SKIP LOCKED)
"""


async def report(
    tx: Transaction,
    provider_slug: str,
    process_id: UUID,
    tally: tuple[int, int, Sequence[UUID]],
    *,
    now: datetime,
) -> None:
    """Report attempts, failures and some connections of the failures."""
    await tx.execute(REPORT, provider_slug, process_id, now, *tally)


async def tallies(tx: Transaction, *, since: datetime) -> dict[str, Tally]:
    rows = await tx.fetch(TALLIES, since)
    return {row["provider_slug"]: Tally(*list(row.values())[1:]) for row in rows}


async def forget_reports(
    tx: Transaction, provider_slug: str | None, *, before: datetime | None = None
) -> int:
    return await tx.execute(FORGET_REPORTS, provider_slug, before)


OPEN = """
    -- Take a provider for down, unless another process has.
    INSERT INTO {schema}.gates AS gate
           (provider_slug, opened_at, opened_because, probe_at, probe_seconds)
    VALUES ($1, $2, $3, $4, $5)
        ON CONFLICT (provider_slug) DO UPDATE
       SET opened_at = excluded.opened_at, opened_because = excluded.opened_because,
           probe_at = excluded.probe_at, probe_seconds = excluded.probe_seconds,
           probed_until = NULL
     WHERE gate.opened_at IS NULL
"""

BEGIN_PROBE = """
    -- Begin a probe, if none is going on and its time has come.
    UPDATE {schema}.gates SET probed_until = $3
     WHERE provider_slug = $1 AND opened_at IS NOT NULL AND paused_at IS NULL
       AND probe_at <= $2 AND coalesce(probed_until <= $2, true)
       AND coalesce(closed_until <= $2, true)
"""

END_PROBE = """
    -- Note that a probe failed, or found nothing to do; the next one comes at this time.
    UPDATE {schema}.gates SET probed_until = NULL, probe_at = $3, probe_seconds = $4
     WHERE provider_slug = $1 AND opened_at = $2
"""

CLOSE = """
    -- A probe was good: the provider is up again, and its jobs start slowly at first.
    UPDATE {schema}.gates
       SET opened_at = NULL, opened_because = NULL, probe_at = NULL, probe_seconds = NULL,
           probed_until = NULL, ramp_rate = $4, ramp_taken = 0,
           ramp_from = CASE WHEN $4::float8 IS NOT NULL THEN $3::timestamptz END
     WHERE provider_slug = $1 AND opened_at = $2
"""

REMOVE_PASSED = """
    -- Remove gates that keep nobody out any more.
    DELETE FROM {schema}.gates
     WHERE paused_at IS NULL AND opened_at IS NULL AND coalesce(closed_until <= $1, true)
       AND coalesce(ramp_from <= $2, true)
"""


async def open_gate(
    tx: Transaction, provider_slug: str, because: str, wait: timedelta, *, now: datetime
) -> bool:
    """Take a provider for down; return whether nobody had."""
    seconds = wait.total_seconds()
    return await tx.execute(OPEN, provider_slug, now, because, now + wait, seconds) == 1


async def begin_probe(
    tx: Transaction, provider_slug: str, *, now: datetime, until: datetime
) -> bool:
    return await tx.execute(BEGIN_PROBE, provider_slug, now, until) == 1


async def end_probe(tx: Transaction, gate: Gate, *, at: datetime, wait: timedelta) -> None:
    seconds = wait.total_seconds()
    await tx.execute(END_PROBE, gate.provider_slug, gate.opened_at, at, seconds)


async def close(tx: Transaction, gate: Gate, *, now: datetime, rate: float | None) -> bool:
    """Take a provider for up again; return whether it was this opening that ended."""
    return await tx.execute(CLOSE, gate.provider_slug, gate.opened_at, now, rate) == 1


async def remove_passed(tx: Transaction, *, now: datetime) -> int:
    return await tx.execute(REMOVE_PASSED, now, now - LASTS)


TAKE_STARTS = """
    -- Take starts of a ramp, unless others have taken them.
    UPDATE {schema}.gates SET ramp_taken = ramp_taken + $3
     WHERE provider_slug = $1 AND ramp_from = $2 AND ramp_taken + $3 <= $4
"""

GIVE_BACK_STARTS = """
    -- Give back starts for which there was no job.
    UPDATE {schema}.gates SET ramp_taken = greatest(0, ramp_taken - $3)
     WHERE provider_slug = $1 AND ramp_from = $2
"""


async def take_starts(tx: Transaction, gate: Gate, count: int, *, allowed: float) -> bool:
    taken = await tx.execute(TAKE_STARTS, gate.provider_slug, gate.ramp_from, float(count), allowed)
    return taken == 1


async def give_back_starts(tx: Transaction, gate: Gate, count: int) -> None:
    await tx.execute(GIVE_BACK_STARTS, gate.provider_slug, gate.ramp_from, float(count))


ADD_STARTS = """
    -- Add jobs that started to their minute, and forget what is older than an hour.
    WITH forgotten AS (
        DELETE FROM {schema}.provider_starts WHERE minute < $4
    )
    INSERT INTO {schema}.provider_starts AS known (provider_slug, minute, starts)
    SELECT slug, $3, starts FROM unnest($1::text[], $2::bigint[]) AS counted (slug, starts)
     ORDER BY slug
        ON CONFLICT (provider_slug, minute) DO UPDATE SET starts = known.starts + excluded.starts
"""

READ_STARTS = """
    -- The starts of a provider's jobs in the last hour in which there were any.
    SELECT sum(starts)::bigint AS starts, min(minute) AS since,
           max(minute) + interval '1 minute' AS until
      FROM {schema}.provider_starts
     WHERE provider_slug = $1
       AND minute >= (SELECT max(minute) - $2::interval FROM {schema}.provider_starts
                       WHERE provider_slug = $1)
"""

COUNT_DUE = """
    -- How many jobs of a provider are due, up to a bound.
    SELECT count(*) FROM (
        SELECT FROM {schema}.sync_jobs
         WHERE provider_slug = $1 AND status = 'queued' AND retry_after IS NULL
           AND scheduled_at <= $2
         LIMIT $3) AS due
"""

COUNT_DUE_CONNECTIONS = """
    -- How many connections of a provider a tick has yet to plan, up to a bound. While the whole
    -- fleet is away, nobody queues their jobs.
    SELECT count(*) FROM (
        SELECT FROM {schema}.connections connection
         WHERE provider_slug = $1 AND status = 'active' AND look_at <= $2
           AND NOT EXISTS (SELECT FROM {schema}.sync_jobs job
                            WHERE job.tenant_id = connection.tenant_id
                              AND job.connection_id = connection.id
                              AND job.status IN ('queued', 'running'))
         LIMIT $3) AS due
"""

BEGIN_RAMP = """
    -- Let a provider's jobs start slowly at first, unless it has a gate already.
    INSERT INTO {schema}.gates (provider_slug, ramp_from, ramp_rate) VALUES ($1, $2, $3)
        ON CONFLICT (provider_slug) DO NOTHING
"""


async def add_starts(tx: Transaction, starts: Mapping[str, int], *, now: datetime) -> None:
    minute = now.replace(second=0, microsecond=0)
    await tx.execute(ADD_STARTS, list(starts), list(starts.values()), minute, minute - KEPT_HISTORY)


async def read_history(tx: Transaction, provider_slug: str) -> History | None:
    row = await tx.fetchrow(READ_STARTS, provider_slug, LONGEST_HISTORY)
    return History(*row) if row["since"] is not None else None


async def read_usual_rate(tx: Transaction, provider_slug: str) -> float | None:
    """Return the usual starts per second of a provider's jobs; None if too little is known."""
    history = await read_history(tx, provider_slug)
    return None if history is None else history.usual_rate


async def has_backlog(tx: Transaction, provider_slug: str, count: int, *, now: datetime) -> bool:
    """Return whether so many jobs of a provider are due, or will be once a tick has run."""
    due: int = await tx.fetchval(COUNT_DUE, provider_slug, now, count)
    if due < count:
        due += await tx.fetchval(COUNT_DUE_CONNECTIONS, provider_slug, now, count - due)
    return due >= count


async def begin_ramp(tx: Transaction, provider_slug: str, rate: float, *, now: datetime) -> bool:
    return await tx.execute(BEGIN_RAMP, provider_slug, now, rate) == 1
