"""When keys were last used: noted at each request, written now and then."""

from datetime import datetime
from uuid import UUID

from syncline.store.data import keys
from syncline.store.pool import Pool


class KeyUses:
    """Keeps uses in memory until they are written.

    A write at each request would delay it, and make all requests with a key wait for one row.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._latest: dict[UUID, datetime] = {}
        self._saved: dict[UUID, datetime] = {}

    def note(self, key_id: UUID, at: datetime) -> None:
        self._latest[key_id] = at

    def later(self, key_id: UUID, stored: datetime | None) -> datetime | None:
        """Return the later one of what is stored and what this process has noted."""
        noted = self._latest.get(key_id)
        return max((at for at in (noted, stored) if at is not None), default=None)

    async def save(self) -> None:
        """Write what was noted since the last time."""
        uses = {id_: at for id_, at in self._latest.items() if self._saved.get(id_) != at}
        if not uses:
            return
        async with self._pool.transaction() as tx:
            await keys.save_uses(tx, uses)
        self._saved |= uses
