"""Renew the leases of running jobs, and stop the runs that may not continue."""

import asyncio
from datetime import timedelta

from syncline.clock import monotonic
from syncline.engine.context import EngineContext
from syncline.engine.worker.runs import Runs, safe_seconds
from syncline.store.pool import Pool
from syncline.store.queue import claims

WATCH_EVERY = timedelta(seconds=0.2)


class LeaseKeeper:
    """Renews the leases of this process, over its own pool, which no other work can exhaust."""

    def __init__(
        self, context: EngineContext, pool: Pool, runs: Runs, claim_now: asyncio.Event
    ) -> None:
        self._settings = context.settings.executor
        self._clock = context.clock
        self._telemetry = context.telemetry
        self._pool = pool
        self._runs = runs
        self._claim_now = claim_now
        self._confirming = asyncio.Lock()

    async def renew(self) -> timedelta:
        """Renew the leases of what runs, and stop the runs whose jobs are no longer ours."""
        await self.confirm_stopped()
        unsettled = self._runs.unsettled()
        if unsettled:
            asked = monotonic()
            async with self._pool.transaction() as tx:
                now = await self._clock.now(tx)
                ours = await claims.renew(
                    tx,
                    [(run.claim.id, run.claim.lease_token) for run in unsettled],
                    expires_at=now + self._settings.lease,
                )
            for run in unsettled:
                if ours.get(run.claim.id):
                    run.lease_confirmed = asked
            gone = [run.claim.id for run in unsettled if run.claim.id not in ours]
            for run in self._runs.lose(gone):
                self._telemetry.job_fenced(run.claim.provider_slug)
        return self._settings.lease / 3

    async def watch(self) -> timedelta:
        """Stop the runs that take too long, and those whose lease could not be renewed."""
        self._runs.stop_overdue(
            max_run_seconds=self._settings.max_run_seconds,
            safe_seconds=safe_seconds(self._settings.lease_seconds),
        )
        return WATCH_EVERY

    async def confirm_stopped(self) -> None:
        """Record which cancelled runs have stopped; their connections' next jobs wait for this."""
        async with self._confirming:  # a second caller finds nothing left to do
            stopped = list(self._runs.stopped)
            if not stopped:
                return
            async with self._pool.statement() as tx:
                confirmed = await claims.confirm_stopped(tx, stopped)
            del self._runs.stopped[: len(stopped)]
        if confirmed:
            self._claim_now.set()
