"""Following signals: what was stored since a position, nothing missed and nothing repeated.

Rows become visible in the order in which their transactions commit, which no column can tell.
But every transaction below the oldest one that still runs has ended: whatever it stored is there,
and nothing more will come. So a follower reads in the order of transactions, up to that horizon.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from syncline.model import StoredSignal
from syncline.store.pool import Transaction
from syncline.store.signal_pages import FIRST_ID, SignalFilter, read_signal

ROWS_LOOKED_AT = 10_000  # however few of them are wanted, a look ends

HORIZON = """
    -- The oldest transaction that still runs; all before it have ended.
    SELECT pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())::text
"""

LOOK = """
    -- The next signals below the horizon, told apart by whether they are wanted.
    SELECT s.transaction_id::text AS written_by, s.id,
           (($5::text IS NULL OR tenant_id = $5) AND ($6::uuid IS NULL OR connection_id = $6)
            AND ($7::text IS NULL OR provider_slug = $7) AND ($8::text IS NULL OR kind = $8))
           AS is_wanted
      FROM {schema}.signals s
     WHERE s.transaction_id >= $1::text::xid8 AND s.transaction_id < $3::text::xid8
       AND (s.transaction_id, s.id) > ($1::text::xid8, $2::uuid)
     ORDER BY s.transaction_id, s.id LIMIT $4
"""

READ = """
    -- These signals, in the order of a look.
    SELECT s.id, s.tenant_id, s.provider_slug, s.connection_id, s.job_id, s.kind, s.occurred_at,
           s.received_at, s.payload, s.dedupe_key
      FROM unnest($1::uuid[]) WITH ORDINALITY AS picked (id, place)
      JOIN {schema}.signals s ON s.id = picked.id
     ORDER BY picked.place
"""


@dataclass(frozen=True, slots=True)
class Position:
    """How far a follower has read: up to this signal of this transaction."""

    transaction: int
    signal_id: UUID


START = Position(0, FIRST_ID)


@dataclass(frozen=True, slots=True)
class Followed:
    """What came next, where to go on, and whether that is all for now."""

    signals: Sequence[StoredSignal]
    position: Position
    is_caught_up: bool


async def read_horizon(tx: Transaction) -> Position:
    """Return the position before which nothing will be stored any more."""
    return Position(int(await tx.fetchval(HORIZON)), FIRST_ID)


async def follow(
    tx: Transaction, wanted: SignalFilter, position: Position, *, limit: int
) -> Followed:
    """Return up to `limit` of the wanted signals after a position; time bounds are not heeded."""
    horizon = await read_horizon(tx)  # a statement of its own: the next one sees all below it
    if position.transaction > horizon.transaction:
        raise ValueError(
            "position lies ahead of this database, which is another one or was restored: "
            "start again"
        )
    budget = limit if wanted == SignalFilter() else ROWS_LOOKED_AT
    looked = await tx.fetch(
        LOOK,
        str(position.transaction),
        position.signal_id,
        str(horizon.transaction),
        budget,
        *(wanted.tenant_id, wanted.connection_id, wanted.provider_slug, wanted.kind),
    )
    picked = [row for row in looked if row["is_wanted"]][:limit]
    rows = await tx.fetch(READ, [row["id"] for row in picked]) if picked else ()
    signals = [read_signal(row) for row in rows]
    if len(picked) == limit:
        last = picked[-1]
    elif len(looked) == budget:
        last = looked[-1]
    else:
        return Followed(signals, horizon, is_caught_up=True)
    return Followed(signals, Position(int(last["written_by"]), last["id"]), is_caught_up=False)
