"""The registry of schedulers: who ticks, and since when."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from syncline.store.pool import Transaction

BEAT = """
    -- Record a finished tick. After a long silence, a scheduler counts as newly started.
    INSERT INTO {schema}.schedulers AS s (id, began_at, ticked_at, held) VALUES ($1, $2, $2, $4)
        ON CONFLICT (id) DO UPDATE
       SET began_at = CASE WHEN s.ticked_at < $3 THEN $2 ELSE s.began_at END, ticked_at = $2,
           held = $4
"""

FORGET_SCHEDULERS = """
    -- Forget a scheduler that stops, and those that have been silent for long.
    DELETE FROM {schema}.schedulers WHERE id = $1 OR ticked_at < $2
"""

TICKED_AHEAD = """
    -- The latest tick of any scheduler, if it was after this time.
    SELECT max(ticked_at) FROM {schema}.schedulers WHERE ticked_at > $1
"""

COME_BACK = """
    -- Correct the ticks of schedulers that ticked while the clock was ahead.
    UPDATE {schema}.schedulers SET began_at = least(began_at, $2), ticked_at = $2
     WHERE ticked_at > $1
"""

TICKING_SINCE = """
    -- When the longest-ticking scheduler that still ticks began.
    SELECT min(began_at) FROM {schema}.schedulers WHERE ticked_at >= $1
"""


async def beat(
    tx: Transaction,
    scheduler_id: UUID,
    *,
    now: datetime,
    silent_since: datetime,
    held: Sequence[UUID] = (),
) -> None:
    """Record a tick, and the connections that other transactions held."""
    await tx.execute(BEAT, scheduler_id, now, silent_since, held)


async def ticked_ahead(tx: Transaction, *, after: datetime) -> datetime | None:
    ahead_at: datetime | None = await tx.fetchval(TICKED_AHEAD, after)
    return ahead_at


async def come_back(tx: Transaction, *, after: datetime, now: datetime) -> int:
    return await tx.execute(COME_BACK, after, now)


async def forget(tx: Transaction, scheduler_id: UUID, *, silent_since: datetime) -> None:
    await tx.execute(FORGET_SCHEDULERS, scheduler_id, silent_since)


async def ticking_since(tx: Transaction, *, ticked_after: datetime) -> datetime | None:
    began_at: datetime | None = await tx.fetchval(TICKING_SINCE, ticked_after)
    return began_at
