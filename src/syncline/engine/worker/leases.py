"""Leases: renewed while their jobs run, taken over where nobody renews them any more."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from uuid import uuid4

from syncline.clock import Clock, monotonic
from syncline.engine.worker.runs import Runs, safe_seconds
from syncline.engine.worker.settle import Settlement, Settler
from syncline.policy.outcome import Lapsed
from syncline.settings import ExecutorSettings
from syncline.store.pool import Pool, Transaction, lies_in_rows
from syncline.store.queue import claims
from syncline.store.queue.claims import Claim
from syncline.telemetry.engine import Telemetry

WATCH_EVERY = timedelta(seconds=0.2)
REAP_EVERY = timedelta(seconds=1)
LARGEST_REAP = 500


class LeaseKeeper:
    """Renews the leases of this process, over a connection that no work can keep busy."""

    def __init__(
        self, pool: Pool, runs: Runs, settings: ExecutorSettings, clock: Clock, telemetry: Telemetry
    ) -> None:
        self._pool = pool
        self._runs = runs
        self._settings = settings
        self._clock = clock
        self._telemetry = telemetry
        self._confirming = asyncio.Lock()
        self.on_stopped: Callable[[], None] = lambda: None

    async def renew(self) -> timedelta:
        """Renew what runs; stop what is no longer ours, and say so once it has stopped."""
        await self.confirm_stopped()
        held = self._runs.unsettled()
        if held:
            asked = monotonic()
            async with self._pool.transaction() as tx:
                now = await self._clock.now(tx)
                ours = await claims.renew(
                    tx,
                    [(run.claim.id, run.claim.lease_token) for run in held],
                    expires_at=now + self._settings.lease,
                )
            for run in held:
                if ours.get(run.claim.id):
                    run.lease_confirmed = asked
            for run in self._runs.lose(run.claim.id for run in held if run.claim.id not in ours):
                self._telemetry.job_fenced(run.claim.provider_slug)
        return self._settings.lease / 3

    async def watch(self) -> timedelta:
        """Stop what runs too long, or longer than its lease could be kept."""
        self._runs.stop_overdue(
            max_run_seconds=self._settings.max_run_seconds,
            safe_seconds=safe_seconds(self._settings.lease_seconds),
        )
        return WATCH_EVERY

    async def confirm_stopped(self) -> None:
        """Say which runs that were cancelled have stopped: their connections' next jobs wait."""
        async with self._confirming:  # whoever waits here finds it done
            stopped = list(self._runs.stopped)
            if not stopped:
                return
            async with self._pool.statement() as tx:
                confirmed = await claims.confirm_stopped(tx, stopped)
            del self._runs.stopped[: len(stopped)]
        if confirmed:
            self.on_stopped()


class Reaper:
    """Returns jobs to the queue whose worker has died, counting the attempt."""

    def __init__(
        self,
        pool: Pool,
        settings: ExecutorSettings,
        clock: Clock,
        settler: Settler,
        telemetry: Telemetry,
    ) -> None:
        self._pool = pool
        self._settings = settings
        self._clock = clock
        self._settler = settler
        self._telemetry = telemetry
        self._held: list[Claim] = []  # taken over, but somebody else holds their rows
        self.on_reaped: Callable[[], None] = lambda: None

    async def step(self) -> timedelta:
        reaped = await self.reap()
        if reaped:
            self.on_reaped()
        return timedelta() if reaped == LARGEST_REAP else REAP_EVERY

    async def reap(self) -> int:
        """Return how many lapsed leases were found.

        They are first taken over under a token of our own, which fences their workers, and then
        settled like any other attempt: connections are locked before jobs here too. Those that
        somebody else holds are left for the next time.
        """
        lapsed = await self._pool.retrying(self._take_over)
        waiting, self._held = [*self._held, *lapsed], []
        while waiting:
            group = {claim.connection_id: claim for claim in reversed(waiting)}
            await self._settle([Settlement(claim, Lapsed()) for claim in group.values()])
            waiting = [claim for claim in waiting if group[claim.connection_id] is not claim]
        for provider, count in Counter(claim.provider_slug for claim in lapsed).items():
            self._telemetry.jobs_reaped(provider, count)
        return len(lapsed)

    async def _take_over(self, tx: Transaction) -> list[Claim]:
        now = await self._clock.now(tx)
        return await claims.take_over(
            tx,
            limit=LARGEST_REAP,
            token=uuid4(),
            now=now,
            duration=self._settings.lease,
        )

    async def _settle(self, group: Sequence[Settlement]) -> None:
        """Settle what lapsed; a group with a row that is in the way is parted."""
        try:
            await self._settler.settle_retrying(group)
        except Exception as error:
            if not lies_in_rows(error):
                raise
            if len(group) == 1:
                self._telemetry.loop_failed("reap", error, timedelta())  # until it lapses again
                return
            middle = len(group) // 2
            for part in (group[:middle], group[middle:]):
                await self._settle(part)
        else:
            self._held += [one.claim for one in group if one.is_held]
