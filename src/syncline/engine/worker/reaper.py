"""Return jobs to the queue whose worker has died, and count the attempt."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from uuid import uuid4

from syncline.engine.context import EngineContext
from syncline.engine.worker.settle import Settlement, Settler
from syncline.policy.outcome import Lapsed
from syncline.store.errors import lies_in_rows
from syncline.store.pool import Transaction
from syncline.store.queue import claims
from syncline.store.queue.claims import Claim, Lease

REAP_EVERY = timedelta(seconds=1)
LARGEST_REAP = 500


class Reaper:
    """Takes over lapsed leases; any number of processes may do so at once."""

    def __init__(self, context: EngineContext, settler: Settler, claim_now: asyncio.Event) -> None:
        self._pool = context.pool
        self._lease = context.settings.executor.lease
        self._clock = context.clock
        self._telemetry = context.telemetry
        self._settler = settler
        self._claim_now = claim_now
        self._blocked: list[Claim] = []  # taken over, but another transaction holds their rows

    async def step(self) -> timedelta:
        reaped = await self.reap()
        if reaped:
            self._claim_now.set()
        return timedelta() if reaped == LARGEST_REAP else REAP_EVERY

    async def reap(self) -> int:
        """Return how many lapsed leases were found.

        They are first taken over under a token of our own, which fences their workers. Then they
        are settled like any other attempt, so connections are locked before jobs here too. Those
        that another transaction holds are left for the next time.
        """
        lapsed = await self._pool.retrying(self._take_over)
        waiting, self._blocked = [*self._blocked, *lapsed], []
        while waiting:
            group = {claim.connection_id: claim for claim in reversed(waiting)}
            await self._settle([Settlement(claim, Lapsed()) for claim in group.values()])
            waiting = [claim for claim in waiting if group[claim.connection_id] is not claim]
        for provider, count in Counter(claim.provider_slug for claim in lapsed).items():
            self._telemetry.jobs_reaped(provider, count)
        return len(lapsed)

    async def _take_over(self, tx: Transaction) -> list[Claim]:
        now = await self._clock.now(tx)
        lease = Lease(uuid4(), now, self._lease)
        return await claims.take_over(tx, lease, now=now, limit=LARGEST_REAP)

    async def _settle(self, group: Sequence[Settlement]) -> None:
        """Settle what lapsed; a group with a bad row is split."""
        try:
            await self._settler.settle_retrying(group)
        except Exception as error:
            if not lies_in_rows(error):
                raise
            if len(group) == 1:
                self._telemetry.loop_failed("reap", error, timedelta())  # until our lease lapses
                return
            middle = len(group) // 2
            for half in (group[:middle], group[middle:]):
                await self._settle(half)
        else:
            self._blocked += [one.claim for one in group if one.is_blocked]
