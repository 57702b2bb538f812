"""When keys were last used, and who sent invalid ones: noted at each request, stored once a minute.

A write per request would delay it, all requests with one key would wait for one row, and whoever
guesses keys would fill the audit.
"""

from collections import Counter
from datetime import datetime
from uuid import UUID

from syncline.clock import Clock
from syncline.store.data import audit, keys
from syncline.store.pool import Pool

MOST_ADDRESSES = 100  # that are told apart in a minute; what the others send is counted together
OTHERS = "others"


class KeyUses:
    """Collects uses in memory until they are stored."""

    def __init__(self, pool: Pool, clock: Clock) -> None:
        self._pool = pool
        self._clock = clock
        self._latest: dict[UUID, datetime] = {}
        self._saved: dict[UUID, datetime] = {}
        self._refused: Counter[str] = Counter()

    def note(self, key_id: UUID, at: datetime) -> None:
        self._latest[key_id] = at

    def refuse(self, address: str) -> None:
        """Count an invalid key from an address."""
        is_told_apart = address in self._refused or len(self._refused) < MOST_ADDRESSES
        self._refused[address if is_told_apart else OTHERS] += 1

    def later(self, key_id: UUID, stored: datetime | None) -> datetime | None:
        """Return the later of the stored use and the one that this process noted."""
        noted = self._latest.get(key_id)
        return max((at for at in (noted, stored) if at is not None), default=None)

    async def save(self) -> None:
        """Store what was noted since the last call."""
        uses = {id_: at for id_, at in self._latest.items() if self._saved.get(id_) != at}
        refused = Counter(self._refused)
        if not uses and not refused:
            return
        async with self._pool.transaction() as tx:
            if uses:
                await keys.save_uses(tx, uses)
            if refused:
                now = await self._clock.now(tx)
                await audit.record_refusals(tx, refused, now=now)
        self._saved |= uses
        self._refused -= refused  # what came meanwhile is stored the next time
