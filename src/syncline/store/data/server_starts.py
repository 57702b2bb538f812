"""The starts of database servers under which signals were stored, in order.

Within one start of a server, transaction numbers only grow. After a promotion or a restore they may
repeat, so signals are read one start after the other. The time of a start identifies it, but does
not order starts: a standby may have started long before the primary that it replaces, and the
clocks of two hosts may differ.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from syncline.store.pool import Transaction

FIRST, LAST = datetime(1, 2, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)

NUMBERED = """
    -- The numbered starts, in order.
    SELECT started_at, holds_older FROM {schema}.server_starts ORDER BY number
"""

UNNUMBERED = """
    -- The first signal of a start that lies between two known ones.
    SELECT signal.server_start, signal.received_at
      FROM unnest($1::timestamptz[], $2::timestamptz[]) AS gap (above, below)
     CROSS JOIN LATERAL (
           SELECT s.server_start, s.received_at FROM {schema}.signals s
            WHERE s.server_start > gap.above AND s.server_start < gap.below
            ORDER BY s.server_start, s.transaction_id, s.id LIMIT 1) AS signal
"""


@dataclass(frozen=True, slots=True)
class ServerStarts:
    """Every start that may have signals, in order, and the one that older rows belong to."""

    in_order: Sequence[datetime]
    older: datetime | None


async def read_starts(tx: Transaction, present: datetime) -> ServerStarts:
    """Return the starts in order: numbered ones, others by first signal, then the present one."""
    rows = await tx.fetch(NUMBERED)
    numbered = [row["started_at"] for row in rows]
    unnumbered = await _find_unnumbered(tx, [*numbered, present])
    earlier = [start for start in (*numbered, *unnumbered) if start != present]
    older = next((row["started_at"] for row in rows if row["holds_older"]), None)
    return ServerStarts([*earlier, present], older)


async def _find_unnumbered(tx: Transaction, known: Sequence[datetime]) -> list[datetime]:
    """Return the starts of signals that have no number, in the order of their first signals."""
    found: dict[datetime, datetime] = {}
    while True:
        bounds = [FIRST, *sorted({*known, *found}), LAST]
        rows = await tx.fetch(UNNUMBERED, bounds[:-1], bounds[1:])
        if not rows:
            return sorted(found, key=lambda start: (found[start], start))
        found.update((row["server_start"], row["received_at"]) for row in rows)


IS_NUMBERED = """
    -- Whether the server's present start has a number.
    SELECT EXISTS (SELECT FROM {schema}.server_starts
                    WHERE started_at = pg_catalog.pg_postmaster_start_time())
"""

PRESENT = """
    -- When this server was started.
    SELECT pg_catalog.pg_postmaster_start_time()
"""

NUMBER = """
    -- Give the next numbers to starts without one, in this order.
    INSERT INTO {schema}.server_starts (started_at, number)
    SELECT start.started_at,
           start.place + (SELECT coalesce(max(number), 0) FROM {schema}.server_starts)
      FROM unnest($1::timestamptz[]) WITH ORDINALITY AS start (started_at, place)
     WHERE NOT EXISTS (SELECT FROM {schema}.server_starts s
                        WHERE s.started_at = start.started_at)
        ON CONFLICT DO NOTHING
"""


async def number_present(tx: Transaction) -> None:
    """Give the server's present start the next number, unless another process has done so."""
    if not await tx.fetchval(IS_NUMBERED):
        starts = await read_starts(tx, await tx.fetchval(PRESENT))
        await tx.execute(NUMBER, starts.in_order)
