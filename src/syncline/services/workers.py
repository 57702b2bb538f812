"""The processes that run this engine."""

from syncline.engine.upkeep.heartbeat import DEAD_AFTER
from syncline.model import Worker
from syncline.services.base import BaseService
from syncline.store.data import workers
from syncline.store.pool import Transaction


class Workers(BaseService):
    async def list(self) -> list[Worker]:
        """Return every live process, and those that died within the last day."""

        async def read(tx: Transaction) -> list[Worker]:
            now = await self._clock.now(tx)
            return await workers.list_all(tx, silent_since=now - DEAD_AFTER)

        return await self._pool.retrying(read)
