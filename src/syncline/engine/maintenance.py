"""Keeping the house: what is long over is struck out, in passing and by whoever comes first."""

from datetime import timedelta

from syncline.clock import Clock
from syncline.engine.presence import FORGOTTEN_AFTER
from syncline.store import workers
from syncline.store.pool import Pool

TIDY_EVERY = timedelta(seconds=60)


class Maintenance:
    """Any number of processes may do this at once; each takes what no other holds."""

    def __init__(self, pool: Pool, clock: Clock) -> None:
        self._pool = pool
        self._clock = clock

    async def step(self) -> timedelta:
        """Tidy up once."""
        async with self._pool.transaction() as tx:
            now = await self._clock.now(tx)
            await workers.forget_dead(tx, silent_since=now - FORGOTTEN_AFTER)
        return TIDY_EVERY
