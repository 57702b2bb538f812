"""The composition root: build everything from the settings, start it, drain it, stop it."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self
from uuid import UUID

from syncline.clock import Dice, Rng, clock_from
from syncline.engine.executor import Executor
from syncline.engine.leases import LeaseKeeper, Reaper
from syncline.engine.loop import Loop
from syncline.engine.people import Connections, Jobs, Signals
from syncline.engine.scheduler import Scheduler, TickReport
from syncline.engine.settlement import Settler
from syncline.engine.wakeup import Wakeup
from syncline.model import Job, JobType
from syncline.sdk.connector import Connector
from syncline.sdk.registry import connectors_by_provider
from syncline.settings import Settings
from syncline.store import invariants, schedule, views
from syncline.store.embedded import EmbeddedPostgres
from syncline.store.invariants import Violation
from syncline.store.migrate import check_schema, migrate
from syncline.store.pool import Pool, Transaction
from syncline.store.views import Summary
from syncline.telemetry import Telemetry

MEASURE_EVERY = timedelta(seconds=15)
LONGEST_SILENCE_SECONDS = 30  # a loop that has not made a good step for so long is not beating


class Engine:
    """Everything an application needs: `async with` opens the pool, `run()` starts the loops."""

    connections: Connections
    jobs: Jobs
    signals: Signals

    def __init__(
        self,
        settings: Settings | None = None,
        connectors: Iterable[Connector] = (),
        clock: Callable[[], datetime] | None = None,
        rng: Rng | None = None,
    ) -> None:
        self.settings = settings or Settings()
        self.providers = connectors_by_provider(connectors)
        self.telemetry = Telemetry(
            tenant_label=self.settings.telemetry.tenant_label, cell=self.settings.schema
        )
        self._clock = clock_from(clock)
        self._dice = Dice(rng)
        self._resources = AsyncExitStack()
        self._loops: list[Loop] = []
        self._stop = asyncio.Event()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as resources:
            url = self.settings.database_url
            if url is None:
                url = (await resources.enter_async_context(EmbeddedPostgres())).url
            await self._open_pools(url, resources)
            self._build(url)
            self._resources = resources.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._executor.drain(0)
        await self._resources.aclose()

    async def migrate(self) -> list[str]:
        """Bring the schema up to this version; return the migrations that were applied."""
        return await migrate(self._pool)

    async def tick(self) -> TickReport:
        """Make one pass of the scheduler."""
        return await self._scheduler.tick()

    async def run_due(self) -> int:
        """Reap, claim and run until a fresh look finds nothing to claim; return the attempts."""
        before = self._executor.attempts
        async with self._keeping_leases():
            while True:
                await self._reaper.reap()
                claimed = await self._executor.claim_and_start()
                if not claimed and not self._executor.runs.unsettled():
                    return self._executor.attempts - before
                if not claimed:
                    await self._executor.wait_for_settlement()

    async def trigger(
        self,
        connection_id: UUID,
        *,
        job_type: str = JobType.INCREMENTAL,
        priority: int | None = None,
        tenant_id: str | None = None,
    ) -> Job:
        """Sync now; return the job that will carry it out."""
        return await self.jobs.trigger(
            connection_id, job_type=job_type, priority=priority, tenant_id=tenant_id
        )

    async def verify(self) -> list[Violation]:
        """Return the invariants that do not hold, with what breaks them."""
        async with self._pool.transaction() as tx:
            scheduler = self.settings.scheduler
            two_ticks_ago = await self._clock.now(tx) - 2 * scheduler.tick_interval
            began_at = await schedule.ticking_since(tx, ticked_after=two_ticks_ago)
            judged = began_at is not None and began_at < two_ticks_ago
            return await invariants.check(
                tx, scheduler.rules, two_ticks_ago=two_ticks_ago if judged else None
            )

    async def summarise(self) -> Summary:
        """Return the counts that a status screen shows."""
        async with self._pool.transaction() as tx:
            return await views.summarise(tx)

    async def health(self) -> dict[str, str]:
        """Return what is not well, by its name; empty means ready."""
        ill = {}
        try:
            async with asyncio.timeout(2), self._pool.transaction() as tx:
                await check_schema(tx, self.settings.schema)
        except Exception as error:
            ill["database"] = f"{type(error).__name__}: {error}"
        for loop in self._loops:
            if loop.seconds_since_last_good_step() > loop.longest_pause + LONGEST_SILENCE_SECONDS:
                ill[loop.name] = f"no good step for {loop.seconds_since_last_good_step():.0f} s"
        return ill

    def stop(self) -> None:
        """Ask `run()` to take no more, let work drain, and return."""
        self._stop.set()

    async def run(
        self, *, signals: bool = True, scheduler: bool = True, executor: bool = True
    ) -> bool:
        """Run every loop until SIGTERM, SIGINT or `stop()`; return whether the end was clean.

        A clean end leaves no row of this process `running`.
        """
        async with self._pool.transaction() as tx:
            await check_schema(tx, self.settings.schema)
        with self._signal_handlers() if signals else contextlib.nullcontext():
            self._loops = self._make_loops(scheduler=scheduler, executor=executor)
            tasks = {
                loop.name: asyncio.create_task(loop.run(), name=f"syncline {loop.name}")
                for loop in self._loops
            }
            try:
                await self._stop.wait()
            finally:
                clean = await self._shut_down(tasks)
        return clean

    async def _shut_down(self, tasks: dict[str, "asyncio.Task[None]"]) -> bool:
        """Take no more, let what runs end, and only then let go of the leases."""
        grace = self.settings.executor.shutdown_grace_seconds
        self._scheduler.stop()
        keeping = {"renew", "watch"}
        for loop in self._loops:
            if loop.name not in keeping:
                loop.stop()
        taking = [task for name, task in tasks.items() if name not in keeping]
        began = asyncio.get_running_loop().time()
        if taking:
            await asyncio.wait(taking, timeout=max(grace, 1))
        spent = asyncio.get_running_loop().time() - began
        if "scheduler" in tasks:
            self.telemetry.scheduler_stopped()
        clean = await self._executor.drain(max(grace - spent, 0))
        if "claim" in tasks:
            self.telemetry.executor_stopped()
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        self._wakeup.close()
        self._loops = []
        self._stop.clear()
        if "scheduler" in tasks:
            with contextlib.suppress(Exception):  # a scheduler that dies is forgotten in time
                await self._scheduler.leave()
        return clean

    def _make_loops(self, *, scheduler: bool, executor: bool) -> list[Loop]:
        loops = []
        if scheduler:
            pause = self.settings.scheduler.tick_interval_seconds
            loops.append(self._loop("scheduler", self._scheduler.step, pause))
        if executor:
            claim = self._loop("claim", self._executor.step)
            self._executor.on_room = claim.wake
            self._wakeup.on_heard(claim.wake)
            loops += [
                claim,
                self._loop("reap", self._reaper.step),
                self._loop("renew", self._keeper.renew, self.settings.executor.lease_seconds),
                self._loop("watch", self._keeper.watch),
                self._loop("measure", self._measure_queue, MEASURE_EVERY.total_seconds()),
            ]
            if self._wakeup.is_on:
                loops.append(self._loop("listen", self._wakeup.step))
        return loops

    def _loop(
        self, name: str, step: Callable[[], "asyncio.Future[timedelta]"], pause: float = 0
    ) -> Loop:
        return Loop(name, step, self.telemetry, self._dice, longest_pause=pause)

    async def _measure_queue(self) -> timedelta:
        async with self._pool.transaction() as tx:
            now = await self._clock.now(tx)
            queue = await views.measure_queue(tx, now=now)
        oldest_age = now - queue.oldest_due_at if queue.oldest_due_at else timedelta()
        self.telemetry.queue_measured(queue.depth_by_provider, oldest_age)
        return MEASURE_EVERY

    @asynccontextmanager
    async def _keeping_leases(self) -> AsyncIterator[None]:
        """Renew and watch in the background while jobs run outside of `run()`."""
        loops = [
            self._loop("renew", self._keeper.renew),
            self._loop("watch", self._keeper.watch),
        ]
        tasks = [asyncio.create_task(loop.run()) for loop in loops]
        try:
            yield
        except asyncio.CancelledError:
            await asyncio.shield(self._executor.drain(0))
            raise
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @contextmanager
    def _signal_handlers(self):  # type: ignore[no-untyped-def]
        """Stop at the first signal, leave at once at the second; put back what was there."""
        loop = asyncio.get_running_loop()
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

        def on_signal() -> None:
            if self._stop.is_set():
                os._exit(1)
            self.stop()

        for number in before:
            loop.add_signal_handler(number, on_signal)
        try:
            yield
        finally:
            for number, handler in before.items():
                loop.remove_signal_handler(number)
                signal.signal(number, handler)

    async def _open_pools(self, url: str, resources: AsyncExitStack) -> None:
        settings = self.settings

        async def check(tx: Transaction) -> None:
            await check_schema(tx, settings.schema)

        idle = timedelta(seconds=min(10, max(2, settings.executor.lease_seconds)))
        pools = [
            Pool(
                url,
                settings.schema,
                size=size,
                pgbouncer=settings.pgbouncer,
                idle_in_transaction=idle,
                check=check,
            )
            for size in (settings.pool_size, 1)
        ]
        for pool in pools:
            await pool.open()
            resources.push_async_callback(pool.close)
        self._pool, self._lease_pool = pools

    def _build(self, url: str) -> None:
        settings, clock, dice, telemetry = self.settings, self._clock, self._dice, self.telemetry
        listen_url = settings.listen_url or (None if settings.pgbouncer else url)
        self._wakeup = Wakeup(None if settings.portable else listen_url, settings.schema)
        self._settler = Settler(self._pool, settings, clock, dice)
        self._scheduler = Scheduler(
            self._pool, settings.scheduler, clock, dice, telemetry, self._wakeup
        )
        self._executor = Executor(
            self._pool, settings.executor, self.providers, clock, self._settler, telemetry
        )
        self._keeper = LeaseKeeper(
            self._lease_pool, self._executor.runs, settings.executor, clock, telemetry
        )
        self._reaper = Reaper(self._pool, settings.executor, clock, self._settler, telemetry)
        people = (self._pool, settings, clock, self._wakeup)
        self.connections, self.jobs, self.signals = (
            Connections(*people),
            Jobs(*people),
            Signals(*people),
        )
