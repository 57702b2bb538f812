"""When keys were last used: noted at each request, stored once a minute."""

from datetime import datetime
from uuid import UUID

from syncline.store.data import keys
from syncline.store.pool import Pool


class KeyUses:
    """Collects uses in memory until they are stored.

    A write per request would delay it, and all requests with one key would wait for one row.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._latest: dict[UUID, datetime] = {}
        self._saved: dict[UUID, datetime] = {}

    def note(self, key_id: UUID, at: datetime) -> None:
        self._latest[key_id] = at

    def later(self, key_id: UUID, stored: datetime | None) -> datetime | None:
        """Return the later of the stored use and the one that this process noted."""
        noted = self._latest.get(key_id)
        return max((at for at in (noted, stored) if at is not None), default=None)

    async def save(self) -> None:
        """Store the uses noted since the last call."""
        uses = {id_: at for id_, at in self._latest.items() if self._saved.get(id_) != at}
        if not uses:
            return
        async with self._pool.transaction() as tx:
            await keys.save_uses(tx, uses)
        self._saved |= uses
