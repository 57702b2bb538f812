"""Claims of what stands first, where every cap has room for all of it."""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from syncline.clock import Clock, monotonic
from syncline.engine.worker.share_book import ShareBook
from syncline.engine.worker.wanted import Wanted
from syncline.policy.caps import Cap, Rooms, places_for_block
from syncline.store.errors import LostRace
from syncline.store.pool import Pool, SessionLease, Transaction
from syncline.store.queue import cap_blocks

BLOCK_LASTS = timedelta(seconds=2)
USED_FOR_SECONDS = 1.0  # the rest is for a slow claim

Rows = tuple[Sequence[Any], bool]  # and whether more may be due
Fill = Callable[[SessionLease, Wanted], Awaitable[Rows]]


@dataclass(slots=True)
class _Block:
    """Places that this process has taken, as many under each cap."""

    holder: UUID
    caps: dict[tuple[str, str], Cap]
    left: Rooms
    until: float  # by this process's clock


class AmpleClaims:
    """Claims as if there were no caps, as long as each has much more room than a claim needs.

    One transaction locks the caps, counts, claims, and takes a block of places. The next claims
    fill these, each by the same single statement as where no caps are set.
    """

    def __init__(self, pool: Pool, clock: Clock, book: ShareBook) -> None:
        self._pool = pool
        self._clock = clock
        self._book = book
        self._block: _Block | None = None
        self._was_full = False  # the last claim; else a block would lie idle

    def end_block(self) -> UUID | None:
        """Use the block no more, and return its holder, for whoever counts to give it back."""
        block, self._block = self._block, None
        return block.holder if block else None

    async def claim(self, session: SessionLease, wanted: Wanted, fill: Fill) -> Rows | None:
        """Claim what stands first, or return None if a cap may be too narrow for that."""
        rows: Sequence[Any] = ()
        if (found := await self._claim_by_block(session, wanted, fill)) is not None:
            rows, is_full = found
            if len(rows) >= wanted.limit:
                return found
            # Little is due, or the block has been dropped. Only a count knows.
            wanted = replace(wanted, limit=wanted.limit - len(rows), poison_jobs=0)
        if (found := await self._claim_counted(wanted, fill)) is None:
            return (rows, True) if rows else None
        more, is_full = found
        self._was_full = is_full
        return ([*rows, *more] if rows else more), is_full

    async def _claim_by_block(
        self, session: SessionLease, wanted: Wanted, fill: Fill
    ) -> Rows | None:
        """Claim by the block; return None if there is none, or not enough of it is left."""
        block = self._block
        if (
            block is None
            or monotonic() >= block.until
            or block.caps != self._book.caps
            or block.left.least < wanted.limit
        ):
            return None
        self._block = None  # if this raises, nobody knows how many places are left
        rows, is_full = await fill(session, replace(wanted, block=block.holder))
        self._block = block
        block.left.take_all(Counter((row["tenant_id"], row["provider_slug"]) for row in rows))
        return rows, is_full

    async def _claim_counted(self, wanted: Wanted, fill: Fill) -> Rows | None:
        """Lock every cap, count, and claim if there is room under each of them."""
        if min(cap.max_running for cap in self._book.caps.values()) < wanted.limit:
            return None
        old, new = self.end_block(), None
        with suppress(*LostRace):
            async with self._pool.transaction() as tx:
                keys = sorted(self._book.caps)
                rooms, all_free = await self._book.lock_and_count(tx, keys, giving_back=old)
                if not all_free or rooms.least < wanted.limit:
                    return None
                found = await fill(lambda: nullcontext(tx), replace(wanted, held=rooms.held))
                if self._was_full and found[1]:
                    new = await self._take_block(tx, rooms, wanted.limit)
            self._block = new
            return found
        return None

    async def _take_block(self, tx: Transaction, rooms: Rooms, claimed: int) -> _Block | None:
        places = places_for_block(rooms.least - claimed, claimed)
        if not places:
            return None
        caps = self._book.caps
        block = _Block(
            uuid4(), caps, Rooms.of_block(caps.values(), places), monotonic() + USED_FOR_SECONDS
        )
        ends_at = self._clock.instant(), BLOCK_LASTS
        await cap_blocks.take(tx, block.holder, sorted(caps), places, ends_at=ends_at)
        return block
