"""Caps and weights: read them, lock a cap, and count what runs under it.

A cap is exact because its row is locked before the running jobs are counted, by a statement of its
own: the count then sees whatever the one before committed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from syncline.policy.caps import Cap, CapUse
from syncline.policy.shares import TenantShare
from syncline.store.pool import Transaction

HEAVY_FOR = timedelta(seconds=5)  # what is noted about a tenant holds so long
HEAVY_REMEMBERED = timedelta(minutes=1)  # after that, it begins anew

READ = """
    -- Every cap, every paused tenant (of which nothing may start), and every weight but the usual
    -- one; where nobody uses them there is none.
    SELECT tenant_id, provider_slug, max_running, set_at, NULL::float8 AS weight,
           false AS is_paused
      FROM {schema}.caps
     UNION ALL
    SELECT tenant_id, '', 0, paused_at, NULL, true FROM {schema}.tenant_pauses
     UNION ALL
    SELECT tenant_id, NULL, NULL, NULL, weight, false
      FROM {schema}.tenant_shares WHERE weight <> 1
"""


async def read(tx: Transaction) -> tuple[list[Cap], list[Cap], dict[str, float]]:
    """Return the caps, the pauses of tenants as caps of none, and weights by tenant."""
    rows = await tx.fetch(READ)
    caps = [row for row in rows if row["weight"] is None]
    return (
        [Cap(*list(row.values())[:4]) for row in caps if not row["is_paused"]],
        [Cap(*list(row.values())[:4]) for row in caps if row["is_paused"]],
        {row["tenant_id"]: row["weight"] for row in rows if row["weight"] is not None},
    )


LOCK = """
    -- Lock caps that nobody else holds, and say which of them were set a moment ago.
    SELECT cap.tenant_id, cap.provider_slug, cap.max_running, cap.set_at,
           coalesce($3::timestamptz, now()) - cap.set_at < $4::interval AS is_new
      FROM {schema}.caps cap
      JOIN unnest($1::text[], $2::text[]) AS wanted (tenant_id, provider_slug)
        ON wanted.tenant_id = cap.tenant_id AND wanted.provider_slug = cap.provider_slug
     ORDER BY cap.tenant_id, cap.provider_slug
       FOR UPDATE OF cap SKIP LOCKED
"""


async def lock(
    tx: Transaction, keys: Sequence[tuple[str, str]], *, now: datetime | None, new_for: timedelta
) -> tuple[list[Cap], bool]:
    """Return the caps that are ours until the transaction ends, and whether one of them is new."""
    tenants, providers = [key[0] for key in keys], [key[1] for key in keys]
    rows = await tx.fetch(LOCK, tenants, providers, now, new_for)
    return [Cap(*list(row.values())[:4]) for row in rows], any(row["is_new"] for row in rows)


COUNT = """
    -- The running jobs that were claimed under a cap, and cancelled ones that may still run; then
    -- the places that processes have taken in blocks, and whether one of the blocks has ended.
    SELECT tenant_id, provider_slug, count(*) AS running, 0 AS uncounted, NULL::bool AS is_ended
      FROM (
        SELECT tenant_id, provider_slug FROM {schema}.sync_jobs
         WHERE status = 'running' AND is_counted
         UNION ALL
        SELECT tenant_id, provider_slug FROM {schema}.sync_jobs
         WHERE status <> 'running' AND (stops_by IS NOT NULL OR lease_token IS NOT NULL)
           AND coalesce(stops_by, lease_expires_at) > coalesce($1::timestamptz, now())) AS counted
     GROUP BY tenant_id, provider_slug
     UNION ALL
    SELECT tenant_id, provider_slug, sum(places), 0,
           bool_or(ends_at <= coalesce($1::timestamptz, now()))
      FROM {schema}.cap_blocks GROUP BY tenant_id, provider_slug
"""

COUNT_ALL = """
    -- The same over all running jobs: some were claimed before the cap was set, or by hand, or by a
    -- version that knows no caps.
    SELECT tenant_id, provider_slug, count(*) AS running,
           count(*) FILTER (WHERE NOT is_counted) AS uncounted, NULL::bool AS is_ended
      FROM (
        SELECT tenant_id, provider_slug, is_counted FROM {schema}.sync_jobs
         WHERE status = 'running'
         UNION ALL
        SELECT tenant_id, provider_slug, true FROM {schema}.sync_jobs
         WHERE status <> 'running' AND (stops_by IS NOT NULL OR lease_token IS NOT NULL)
           AND coalesce(stops_by, lease_expires_at) > coalesce($1::timestamptz, now())) AS counted
     GROUP BY tenant_id, provider_slug
     UNION ALL
    SELECT tenant_id, provider_slug, sum(places), 0,
           bool_or(ends_at <= coalesce($1::timestamptz, now()))
      FROM {schema}.cap_blocks GROUP BY tenant_id, provider_slug
"""

Pair = tuple[str, str]  # a tenant and a provider


@dataclass(frozen=True, slots=True)
class Count:
    """What runs, by tenant and provider, and the places in blocks, by cap."""

    running: dict[Pair, int]
    uncounted: dict[Pair, int]  # those of them that were claimed under no cap
    in_blocks: dict[Pair, int]
    has_ended_block: bool


async def count(tx: Transaction, *, now: datetime | None, with_uncounted: bool) -> Count:
    rows = await tx.fetch(COUNT_ALL if with_uncounted else COUNT, now)
    found = Count({}, {}, {}, any(row["is_ended"] for row in rows))
    for tenant_id, provider_slug, number, uncounted, is_ended in rows:
        pair = tenant_id, provider_slug
        if is_ended is None:
            found.running[pair], found.uncounted[pair] = number, uncounted
        else:
            found.in_blocks[pair] = number
    return found


SET = """
    -- Set a cap; what runs already goes on.
    INSERT INTO {schema}.caps (tenant_id, provider_slug, max_running, set_at)
    VALUES ($1, $2, $3, $4)
        ON CONFLICT (tenant_id, provider_slug) DO UPDATE
       SET max_running = excluded.max_running, set_at = excluded.set_at
"""

CLEAR = """
    -- Remove a cap.
    DELETE FROM {schema}.caps WHERE tenant_id = $1 AND provider_slug = $2
"""

FORGET_TENANT = """
    -- Remove the caps, the pause and the weight of a tenant.
    WITH uncapped AS (
        DELETE FROM {schema}.caps WHERE tenant_id = $1 AND tenant_id <> ''
    ), resumed AS (
        DELETE FROM {schema}.tenant_pauses WHERE tenant_id = $1
    )
    DELETE FROM {schema}.tenant_shares WHERE tenant_id = $1
"""


async def set_cap(
    tx: Transaction, tenant_id: str, provider_slug: str, max_running: int, *, now: datetime
) -> None:
    await tx.execute(SET, tenant_id, provider_slug, max_running, now)


async def clear(tx: Transaction, tenant_id: str, provider_slug: str) -> bool:
    return await tx.execute(CLEAR, tenant_id, provider_slug) == 1


async def forget_tenant(tx: Transaction, tenant_id: str) -> None:
    await tx.execute(FORGET_TENANT, tenant_id)


SET_WEIGHT = """
    -- Set the weight of a tenant.
    INSERT INTO {schema}.tenant_shares (tenant_id, weight) VALUES ($1, $2)
        ON CONFLICT (tenant_id) DO UPDATE SET weight = excluded.weight
"""

NOTE_HEAVY = """
    -- Show which tenants ask for more than their share, since when, and how many jobs each has due.
    -- One that did so a moment ago keeps its time.
    INSERT INTO {schema}.tenant_shares AS share
           (tenant_id, heavy_until, heavy_due, heavy_since, heavy_others)
    SELECT heavy.tenant_id, $3::timestamptz, heavy.due, $4::timestamptz, $5::int
      FROM unnest($1::text[], $2::int[]) AS heavy (tenant_id, due)
     ORDER BY heavy.tenant_id
        ON CONFLICT (tenant_id) DO UPDATE
       SET heavy_until = excluded.heavy_until, heavy_due = excluded.heavy_due,
           heavy_others = excluded.heavy_others,
           heavy_since = CASE WHEN share.heavy_until >= $6::timestamptz
                              THEN coalesce(share.heavy_since, excluded.heavy_since)
                              ELSE excluded.heavy_since END
"""

FORGET = """
    -- Remove the rows of tenants with the usual weight that asked for no more than their share of
    -- late; rows that somebody else writes stay.
    DELETE FROM {schema}.tenant_shares
     WHERE tenant_id = ANY (ARRAY(
           SELECT tenant_id FROM {schema}.tenant_shares
            WHERE weight = 1 AND coalesce(heavy_until < $1, true)
            ORDER BY tenant_id
              FOR UPDATE SKIP LOCKED))
"""


async def set_weight(tx: Transaction, tenant_id: str, weight: float) -> None:
    await tx.execute(SET_WEIGHT, tenant_id, weight)


async def note_heavy(tx: Transaction, due: dict[str, int], *, others: int, now: datetime) -> None:
    """Note the jobs that each of these tenants has due, and how many others have jobs due."""
    kept = now - HEAVY_REMEMBERED
    await tx.execute(NOTE_HEAVY, list(due), list(due.values()), now + HEAVY_FOR, now, others, kept)


async def forget_heavy(tx: Transaction, *, now: datetime) -> int:
    return await tx.execute(FORGET, now - HEAVY_REMEMBERED)


READ_USES = """
    -- Caps, of one tenant or provider if given, and how many jobs run under each.
    SELECT cap.tenant_id, cap.provider_slug, cap.max_running, cap.set_at,
           (SELECT count(*) FROM {schema}.sync_jobs j
             WHERE j.status = 'running'
               AND (cap.tenant_id = '' OR j.tenant_id = cap.tenant_id)
               AND (cap.provider_slug = '' OR j.provider_slug = cap.provider_slug)) AS running
      FROM {schema}.caps cap
     WHERE ($1::text IS NULL OR cap.tenant_id IN ('', $1))
       AND ($2::text IS NULL OR cap.provider_slug IN ('', $2))
     ORDER BY cap.tenant_id, cap.provider_slug
"""

READ_SHARES = """
    -- Tenants with a weight, or that asked for more than their share lately.
    SELECT tenant_id, weight, heavy_until, heavy_due, heavy_since, heavy_others
      FROM {schema}.tenant_shares
     WHERE $1::text IS NULL OR tenant_id = $1
     ORDER BY tenant_id
"""


async def read_uses(
    tx: Transaction, *, tenant_id: str | None = None, provider_slug: str | None = None
) -> list[CapUse]:
    """Return caps with what runs under them, of one tenant or provider if named."""
    rows = [list(row.values()) for row in await tx.fetch(READ_USES, tenant_id, provider_slug)]
    return [CapUse(Cap(*row[:4]), row[4]) for row in rows]


async def read_shares(tx: Transaction, tenant_id: str | None = None) -> list[TenantShare]:
    return [TenantShare(*row.values()) for row in await tx.fetch(READ_SHARES, tenant_id)]
