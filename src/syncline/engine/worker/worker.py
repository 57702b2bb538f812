"""The worker: everything in this process that claims, runs, settles and reaps jobs."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta

from syncline.engine.context import EngineContext
from syncline.engine.loop import Loop, LoopSpec
from syncline.engine.secrets.token_refresh import TokenRefresher
from syncline.engine.worker.budgets import BudgetKeeper
from syncline.engine.worker.executor import Executor
from syncline.engine.worker.gatekeeper import Gatekeeper
from syncline.engine.worker.leases import LeaseKeeper
from syncline.engine.worker.reaper import Reaper
from syncline.engine.worker.runs import Runs
from syncline.engine.worker.settle import Settler
from syncline.engine.worker.settle_queue import SettleQueue
from syncline.http.budgets import CallBudgets, CallPermits
from syncline.http.gate import ClosedProviders
from syncline.sdk.connector import Connector
from syncline.store.pool import Pool
from syncline.store.stats import queue

MEASURE_EVERY = timedelta(seconds=15)
IN_BACKGROUND = ("renew", "watch", "gates", "budgets")


class Worker:
    """Builds the parts in the order of their dependencies, and names their loops."""

    def __init__(
        self,
        context: EngineContext,
        lease_pool: Pool,
        connectors: Mapping[str, Connector],
        token_refresher: TokenRefresher,
        permits: CallPermits,
    ) -> None:
        self._context = context
        self.claim_now = asyncio.Event()  # ends the pause of the claim loop
        self._renew_now = asyncio.Event()  # ends the pause of the renew loop
        self.settler = Settler(context)
        lease_seconds = context.settings.executor.lease_seconds
        calls, closed = permits.budgets or CallBudgets(), permits.closed or ClosedProviders()
        calls.open()
        self.budgets = BudgetKeeper(context, connectors, calls, self.claim_now)
        self.gatekeeper = Gatekeeper(context, connectors, closed, self.budgets)
        self.settle_queue = SettleQueue(
            self.settler, context.telemetry, lease_seconds, observer=self.gatekeeper
        )
        self.runs = Runs(self.settle_queue, self.claim_now, self._renew_now, calls)
        self.executor = Executor(context, connectors, token_refresher, self.runs, self.gatekeeper)
        self.keeper = LeaseKeeper(context, lease_pool, self.runs, self.claim_now)
        self.reaper = Reaper(context, self.settler, self.claim_now)

    def loops(self) -> list[LoopSpec]:
        lease = self._context.settings.executor.lease
        return [
            LoopSpec("claim", self.executor.step, wake=self.claim_now),
            LoopSpec("walk", self.executor.walk),
            LoopSpec("reap", self.reaper.step),
            LoopSpec("gates", self.gatekeeper.step, wake=self.gatekeeper.step_now),
            LoopSpec("budgets", self.budgets.step, wake=self.budgets.calls.wanted),
            LoopSpec("renew", self.keeper.renew, longest_pause=lease, wake=self._renew_now),
            LoopSpec("watch", self.keeper.watch),
            LoopSpec("measure", self._measure_queue, longest_pause=MEASURE_EVERY),
        ]

    async def run_due(self) -> int:
        """Run due jobs until a claim finds none; return the number of attempts."""
        before = self.executor.attempts
        async with self._keeping_leases():
            await self.reaper.reap()
            while True:
                self.runs.some_settled.clear()
                if await self.executor.claim_and_start():
                    continue
                if self.runs.unsettled():
                    await self.runs.some_settled.wait()
                elif not self.runs.some_settled.is_set() and not await self.reaper.reap():
                    # Nothing was settled during this claim, so no run of ours can have queued more.
                    return self.executor.attempts - before

    @asynccontextmanager
    async def _keeping_leases(self) -> AsyncIterator[None]:
        """Renew and watch in the background while jobs run outside of the service."""
        specs = [spec for spec in self.loops() if spec.name in IN_BACKGROUND]
        telemetry, dice = self._context.telemetry, self._context.dice
        tasks = [asyncio.create_task(Loop(spec, telemetry, dice).run()) for spec in specs]
        try:
            yield
            await self.keeper.confirm_stopped()
            await self.budgets.tell()
        except asyncio.CancelledError:
            await asyncio.shield(self.executor.drain(0))
            raise
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _measure_queue(self) -> timedelta:
        async with self._context.pool.transaction() as tx:
            now = await self._context.clock.now(tx)
            depth = await queue.measure_depth(tx, now=now)
        oldest_age = now - depth.oldest_due_at if depth.oldest_due_at else timedelta()
        self._context.telemetry.queue_measured(depth.depth_by_provider, oldest_age)
        return MEASURE_EVERY
