"""Signals after a position, each exactly once.

Rows become visible when their transaction commits, and no column holds that order. But every
transaction below the oldest running one has ended: its rows are visible, and it adds no more. So a
follower reads in the order of transactions, up to that horizon.

The server numbers transactions. After a promotion, or in a cluster that a dump was restored into,
numbers that a follower has passed may be used again. So a follower reads one start of the server
after the other (`server_starts`): what an earlier start stored is complete.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from syncline.errors import PositionLost
from syncline.model import START, Position, SignalFilter, StoredSignal
from syncline.store.data.server_starts import read_starts
from syncline.store.listings.signals import FIRST_ID, read_signal
from syncline.store.pool import Transaction

ROWS_SCANNED = 10_000  # at most, even if few of them are wanted
ALL_TRANSACTIONS = 2**64 - 1

HORIZON = """
    -- This start of the server, and its oldest transaction that may still run.
    SELECT pg_catalog.pg_postmaster_start_time() AS started_at,
           pg_catalog.pg_is_in_recovery() AS is_standby,
           pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())::text AS transaction
"""

LOOK = """
    -- The next signals of a start below a transaction, and whether each is wanted.
    SELECT s.server_start, s.transaction_id::text AS written_by, s.id,
           (($6::text IS NULL OR tenant_id = $6) AND ($7::uuid IS NULL OR connection_id = $7)
            AND ($8::text IS NULL OR provider_slug = $8) AND ($9::text IS NULL OR kind = $9)
            AND ($10::uuid IS NULL OR job_id = $10))
           AS is_wanted
      FROM {schema}.signals s
     WHERE s.server_start = $1 AND (s.transaction_id, s.id) > ($2::text::xid8, $3::uuid)
       AND s.transaction_id < $4::text::xid8
     ORDER BY s.server_start, s.transaction_id, s.id LIMIT $5
"""

READ = """
    -- These signals, in the order of their ids in the list.
    SELECT s.id, s.tenant_id, s.provider_slug, s.connection_id, s.job_id, s.kind, s.occurred_at,
           s.received_at, s.payload, s.dedupe_key
      FROM unnest($1::uuid[]) WITH ORDINALITY AS picked (id, place)
      JOIN {schema}.signals s ON s.id = picked.id
     ORDER BY picked.place
"""

LAST = """
    -- The last signal of a start below a transaction.
    SELECT s.server_start, s.transaction_id::text AS written_by, s.id FROM {schema}.signals s
     WHERE s.server_start = $1 AND s.transaction_id < $2::text::xid8
     ORDER BY s.server_start DESC, s.transaction_id DESC, s.id DESC LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class FollowIds:
    """A `FollowBatch` with ids in place of signals."""

    ids: Sequence[UUID]
    position: Position
    is_caught_up: bool
    server_changed: bool


@dataclass(frozen=True, slots=True)
class Stretch:
    """The signals of one start, after one place and below one transaction."""

    server_start: datetime
    after: tuple[int, UUID]
    below: int = ALL_TRANSACTIONS


async def find(
    tx: Transaction, wanted: SignalFilter, position: Position, *, limit: int
) -> FollowIds:
    """Return up to `limit` of the wanted signals after a position; ignore `since` and `until`.

    It reads a bounded number of rows, so it ends even if few of them are wanted.
    """
    budget = limit if wanted == SignalFilter() else ROWS_SCANNED
    # The horizon is a statement of its own: the next one sees all that is below it.
    stretches = await _stretches(tx, position)
    looked: list[Any] = []
    for stretch in stretches:
        looked += await _look(tx, wanted, stretch, budget - len(looked))
        if len(looked) == budget:
            break
    picked = [row for row in looked if row["is_wanted"]][:limit]
    if position != START:
        position = replace(position, server_start=stretches[0].server_start)
    last = picked[-1] if len(picked) == limit else looked[-1] if looked else None
    reached = _position(last) if last is not None else position
    return FollowIds(
        [row["id"] for row in picked],
        reached,
        is_caught_up=len(picked) < limit and len(looked) < budget,
        server_changed=position not in (START, reached)
        and position.server_start != reached.server_start,
    )


async def read(tx: Transaction, ids: Sequence[UUID]) -> list[StoredSignal]:
    """Return the signals with these ids, in that order."""
    return [read_signal(row) for row in await tx.fetch(READ, ids)]


async def read_end(tx: Transaction) -> Position:
    """Return the position after every signal below the horizon."""
    for stretch in reversed(await _stretches(tx, START)):
        last = await tx.fetchrow(LAST, stretch.server_start, str(stretch.below))
        if last is not None:
            return _position(last)
    return START


async def _stretches(tx: Transaction, position: Position) -> list[Stretch]:
    """Return what lies after a position, one stretch per start of the server."""
    horizon = await tx.fetchrow(HORIZON)
    after, below = (position.transaction, position.signal_id), int(horizon["transaction"])
    present: datetime = horizon["started_at"]
    starts: Sequence[datetime] = [present]
    if position.server_start != present or horizon["is_standby"]:
        starts = await _starts(tx, position, present, is_standby=horizon["is_standby"])
    if len(starts) == 1 and position.transaction > below:
        raise PositionLost("lies ahead of this database")
    return [
        Stretch(
            start,
            after if place == 0 else (0, FIRST_ID),
            below if place == len(starts) - 1 else ALL_TRANSACTIONS,
        )
        for place, start in enumerate(starts)
    ]


async def _starts(
    tx: Transaction, position: Position, present: datetime, *, is_standby: bool
) -> Sequence[datetime]:
    """Return the starts from the position's on; the last is the one that still stores signals."""
    starts = await read_starts(tx, present)
    in_order = starts.in_order
    if is_standby and len(in_order) > 1:
        in_order = in_order[:-1]  # its own start stores nothing; it repeats what another does
    if position == START:
        return in_order
    start = position.server_start or starts.older
    if start not in in_order:
        raise PositionLost("is of signals that this database does not know")
    return in_order[in_order.index(start) :]


async def _look(tx: Transaction, wanted: SignalFilter, stretch: Stretch, limit: int) -> Any:
    transaction, signal_id = stretch.after
    return await tx.fetch(
        LOOK,
        *(stretch.server_start, str(transaction), signal_id, str(stretch.below), limit),
        *(wanted.tenant_id, wanted.connection_id, wanted.provider_slug, wanted.kind),
        wanted.job_id,
    )


def _position(row: Any) -> Position:
    return Position(int(row["written_by"]), row["id"], row["server_start"])
