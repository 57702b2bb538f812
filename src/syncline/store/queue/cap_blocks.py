"""Blocks of places under caps: a process fills its own without counting what runs.

A block is as exact as a count, whatever the time is. Every count adds all places of every block to
what runs. A claim by a block locks its row. A block that has ended is deleted under that lock, and
what runs is counted by a later statement, which sees what was claimed by it.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from syncline.store.pool import Transaction

TAKE = """
    -- Take places under caps whose rows are locked, and under which there is room for them.
    WITH taken AS MATERIALIZED (
        SELECT $1::uuid, cap.tenant_id, cap.provider_slug, cap.max_running, $4::int,
               coalesce($5::timestamptz, now()) + $6::interval
          FROM {schema}.caps cap
          JOIN unnest($2::text[], $3::text[]) AS wanted (tenant_id, provider_slug)
            ON wanted.tenant_id = cap.tenant_id AND wanted.provider_slug = cap.provider_slug
    )
    INSERT INTO {schema}.cap_blocks (holder, tenant_id, provider_slug, max_running, places, ends_at)
    SELECT * FROM taken
"""

GIVE_BACK = """
    -- Remove a block that is used up; no claim by it is under way.
    DELETE FROM {schema}.cap_blocks WHERE holder = $1
"""

DROP_ENDED = """
    -- Remove blocks that have ended. One that a claim has locked counts until the claim is over.
    WITH ended AS MATERIALIZED (
        SELECT holder, tenant_id, provider_slug FROM {schema}.cap_blocks
         WHERE ends_at <= coalesce($1::timestamptz, now())
           FOR UPDATE SKIP LOCKED
    )
    DELETE FROM {schema}.cap_blocks block USING ended
     WHERE block.holder = ended.holder AND block.tenant_id = ended.tenant_id
       AND block.provider_slug = ended.provider_slug
"""


async def take(
    tx: Transaction,
    holder: UUID,
    keys: Sequence[tuple[str, str]],
    places: int,
    *,
    ends_at: tuple[datetime | None, timedelta],
) -> None:
    """Take so many places under each of these caps, until so long after now."""
    tenants, providers = [key[0] for key in keys], [key[1] for key in keys]
    await tx.execute(TAKE, holder, tenants, providers, places, *ends_at)


async def give_back(tx: Transaction, holder: UUID) -> None:
    await tx.execute(GIVE_BACK, holder)


async def drop_ended(tx: Transaction, *, now: datetime | None) -> None:
    await tx.execute(DROP_ENDED, now)
