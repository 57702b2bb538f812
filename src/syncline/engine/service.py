"""The running service: every loop, the signals that end it, and an orderly end."""

import asyncio
import contextlib
import gc
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta

from syncline.clock import Clock, Dice, monotonic
from syncline.engine.loop import Loop
from syncline.engine.scheduler.tick import Scheduler
from syncline.engine.upkeep.heartbeat import BEAT_EVERY, Heartbeat
from syncline.engine.upkeep.maintenance import MAINTAIN_EVERY, Maintenance
from syncline.engine.upkeep.retention import FIRST_REST, REST, Pruner
from syncline.engine.wakeup import Wakeup
from syncline.engine.watchdog import Watchdog
from syncline.engine.worker.executor import Executor
from syncline.engine.worker.leases import LeaseKeeper, Reaper
from syncline.settings import Settings
from syncline.store.embedded import EmbeddedPostgres
from syncline.store.pool import Pool
from syncline.store.stats import queue
from syncline.telemetry.engine import Telemetry

CHECK_DATABASE_EVERY = timedelta(seconds=3)
MEASURE_EVERY = timedelta(seconds=15)
LONGEST_SILENCE_SECONDS = 30  # a loop that has not made a good step for so long is not beating
SELDOM = (50_000, 20, 100)  # garbage is collected so many new objects, and passes, later
KEEPING = {"renew", "watch", "beat"}  # these go on until the last job is settled


class Service:
    """Runs the loops of one engine in this process."""

    def __init__(
        self,
        settings: Settings,
        scheduler: Scheduler,
        executor: Executor,
        keeper: LeaseKeeper,
        reaper: Reaper,
        heartbeat: Heartbeat,
        maintenance: Maintenance,
        pruner: Pruner,
        wakeup: Wakeup,
        embedded: EmbeddedPostgres | None,
        pool: Pool,
        clock: Clock,
        dice: Dice,
        telemetry: Telemetry,
    ) -> None:
        self._settings = settings
        self._scheduler = scheduler
        self._executor = executor
        self._keeper = keeper
        self._reaper = reaper
        self._heartbeat = heartbeat
        self._maintenance = maintenance
        self._pruner = pruner
        self._wakeup = wakeup
        self._embedded = embedded
        self._pool = pool
        self._clock = clock
        self._dice = dice
        self._telemetry = telemetry
        self._loops: list[Loop] = []
        self._stop = asyncio.Event()

    def stop(self) -> None:
        self._stop.set()

    @property
    def is_stopping(self) -> bool:
        return self._stop.is_set()

    async def run(self, *, handle_signals: bool, scheduler: bool, executor: bool) -> bool:
        """Run until a signal or `stop()`; return whether no row was left `running`."""
        with self._owned_process() if handle_signals else contextlib.nullcontext():
            self._heartbeat.enter(scheduler=scheduler, executor=executor)
            self._loops = self._make_loops(scheduler=scheduler, executor=executor)
            tasks = {
                loop.name: asyncio.create_task(loop.run(), name=f"syncline {loop.name}")
                for loop in self._loops
            }
            watchdog = Watchdog(self._executor.runs.provider_of, self._telemetry)
            with watchdog.watching():
                try:
                    await self._stop.wait()
                finally:
                    clean = await self._shut_down(tasks)
        return clean

    async def run_due(self) -> int:
        """Run what is due until a fresh look finds nothing to claim; return the attempts made."""
        before = self._executor.attempts
        async with self._keeping_leases():
            runs = self._executor.runs
            await self._reaper.reap()
            while True:
                runs.some_settled.clear()
                if await self._executor.claim_and_start():
                    continue
                if runs.unsettled():
                    await runs.some_settled.wait()
                elif not runs.some_settled.is_set() and not await self._reaper.reap():
                    # Nothing was settled during this look, so none of ours can have queued more.
                    return self._executor.attempts - before

    def ailing(self) -> dict[str, str]:
        """Return what fails again and again, or no longer beats, and why."""
        ill = {}
        for loop in self._loops:
            seconds = loop.seconds_since_last_good_step()
            if loop.trouble is not None:
                ill[loop.name] = loop.trouble
            elif seconds > loop.longest_pause + LONGEST_SILENCE_SECONDS:
                ill[loop.name] = f"no good step for {seconds:.0f} s"
        if self._executor.settle_trouble is not None:
            ill["settle"] = self._executor.settle_trouble
        return ill

    async def _shut_down(self, tasks: dict[str, "asyncio.Task[None]"]) -> bool:
        """Take no more, let what runs end, and only then let go of the leases."""
        deadline = monotonic() + self._settings.executor.shutdown_grace_seconds
        await self._stop_taking(tasks, deadline)
        clean = await self._executor.drain(max(deadline - monotonic(), 0))
        if clean:  # else the database is away, and would only take more time
            await self._end_beat(tasks["beat"])
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        self._wakeup.close()
        if clean:
            await self._leave(self._heartbeat.leave, deadline)
        if "scheduler" in tasks:
            await self._leave(self._scheduler.leave, deadline)
            self._telemetry.scheduler_stopped()
        if "claim" in tasks:
            self._telemetry.executor_stopped()
        self._loops = []
        self._stop.clear()
        self._scheduler.start()  # whoever ticks this engine later must not find it stopped
        return clean

    async def _stop_taking(self, tasks: dict[str, "asyncio.Task[None]"], deadline: float) -> None:
        """Let every step in progress end, but for those that keep the leases; begin no other."""
        self._scheduler.stop()
        self._heartbeat.stop()
        self._executor.is_claiming = False
        for loop in self._loops:
            if loop.name not in KEEPING:
                loop.stop()
            elif loop.name == "beat":
                loop.wake()
        taking = [task for name, task in tasks.items() if name not in KEEPING]
        if taking:
            await asyncio.wait(taking, timeout=max(deadline - monotonic(), 1))

    async def _end_beat(self, beating: "asyncio.Task[None]") -> None:
        """Let a beat in progress end: cut short, it might write its row again after we left."""
        for loop in self._loops:
            if loop.name == "beat":
                loop.stop()
        await asyncio.wait([beating], timeout=1)

    async def _leave(self, leave: Callable[[], Awaitable[None]], deadline: float) -> None:
        with contextlib.suppress(Exception):  # one that cannot say so is forgotten in time
            async with asyncio.timeout(max(deadline - monotonic(), 1)):
                await leave()

    def _make_loops(self, *, scheduler: bool, executor: bool) -> list[Loop]:
        loops = [
            self._loop("beat", self._heartbeat.beat, BEAT_EVERY.total_seconds()),
            self._loop("maintain", self._maintenance.step, MAINTAIN_EVERY.total_seconds()),
            self._loop("prune", self._pruner.step, REST.total_seconds(), FIRST_REST),
        ]
        if self._embedded is not None:
            loops.append(self._loop("embedded", self._keep_database))
        if scheduler:
            pause = self._settings.scheduler.tick_interval_seconds
            loops.append(self._loop("scheduler", self._scheduler.step, pause))
        if executor:
            claim = self._loop("claim", self._executor.step)
            self._executor.on_room = self._reaper.on_reaped = claim.wake
            self._keeper.on_stopped = claim.wake
            self._wakeup.on_heard(claim.wake)
            renew = self._loop("renew", self._keeper.renew, self._settings.executor.lease_seconds)
            self._executor.runs.on_stopped = renew.wake
            loops += [
                claim,
                self._loop("reap", self._reaper.step),
                renew,
                self._loop("watch", self._keeper.watch),
                self._loop("measure", self._measure_queue, MEASURE_EVERY.total_seconds()),
            ]
            if self._wakeup.is_on:
                loops.append(self._loop("listen", self._wakeup.step))
        return loops

    def _loop(
        self,
        name: str,
        step: Callable[[], Awaitable[timedelta]],
        longest_pause: float = 0,
        first_pause: timedelta = timedelta(),
    ) -> Loop:
        return Loop(name, step, self._telemetry, self._dice, longest_pause, first_pause)

    async def _keep_database(self) -> timedelta:
        """Start the embedded Postgres again if it has died; nobody else would."""
        if self._embedded is not None:
            await self._embedded.ensure_running()
        return CHECK_DATABASE_EVERY

    async def _measure_queue(self) -> timedelta:
        async with self._pool.transaction() as tx:
            now = await self._clock.now(tx)
            depth = await queue.measure_depth(tx, now=now)
        oldest_age = now - depth.oldest_due_at if depth.oldest_due_at else timedelta()
        self._telemetry.queue_measured(depth.depth_by_provider, oldest_age)
        return MEASURE_EVERY

    @asynccontextmanager
    async def _keeping_leases(self) -> AsyncIterator[None]:
        """Renew and watch in the background while jobs run outside of `run()`."""
        renew, watch = (
            self._loop("renew", self._keeper.renew),
            self._loop("watch", self._keeper.watch),
        )
        self._executor.runs.on_stopped = renew.wake
        tasks = [asyncio.create_task(loop.run()) for loop in (renew, watch)]
        try:
            yield
            await self._keeper.confirm_stopped()
        except asyncio.CancelledError:
            await asyncio.shield(self._executor.drain(0))
            raise
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @contextmanager
    def _owned_process(self) -> Iterator[None]:
        """Take the process for our own: its signals, and its garbage collector.

        Thousands of short-lived objects a second set off collections that walk all the long-lived
        ones in vain: a third of the processor time of an empty run.
        """
        thresholds = gc.get_threshold()
        gc.freeze()
        gc.set_threshold(*SELDOM)
        try:
            with self._signal_handlers():
                yield
        finally:
            gc.set_threshold(*thresholds)
            gc.unfreeze()

    @contextmanager
    def _signal_handlers(self) -> Iterator[None]:
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
