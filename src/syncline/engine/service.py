"""The running service: every loop, the signals that stop it, and an orderly shutdown."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

from syncline.clock import monotonic
from syncline.engine.context import EngineContext
from syncline.engine.garbage_collector import RARE_COLLECTIONS
from syncline.engine.loop import Loop, LoopSpec
from syncline.engine.scheduler.tick import Scheduler
from syncline.engine.upkeep.bulk import LOOK_EVERY, BulkRunner
from syncline.engine.upkeep.figures import WRITE_EVERY, FigureKeeper
from syncline.engine.upkeep.heartbeat import BEAT_EVERY, Heartbeat
from syncline.engine.upkeep.maintenance import MAINTAIN_EVERY, Maintenance
from syncline.engine.upkeep.retention import ROUND_EVERY, Pruner
from syncline.engine.wakeup import Wakeup
from syncline.engine.watchdog import Watchdog
from syncline.engine.worker.worker import Worker
from syncline.store.embedded import EmbeddedPostgres

CHECK_DATABASE_EVERY = timedelta(seconds=3)
# These continue until the last job is settled, whose run may still call its provider.
KEPT_LOOPS = {"renew", "watch", "beat", "budgets"}


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What keeps the process and its database in order."""

    heartbeat: Heartbeat
    maintenance: Maintenance
    pruner: Pruner
    figures: FigureKeeper
    bulk: BulkRunner
    embedded: EmbeddedPostgres | None  # our own server, if there is one


class Service:
    """Runs the loops of one engine in this process."""

    def __init__(
        self,
        context: EngineContext,
        scheduler: Scheduler,
        worker: Worker,
        upkeep: Upkeep,
        wakeup: Wakeup,
    ) -> None:
        self._context = context
        self._scheduler = scheduler
        self._worker = worker
        self._upkeep = upkeep
        self._wakeup = wakeup
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
            self._upkeep.heartbeat.enter(scheduler=scheduler, executor=executor)
            context = self._context
            self._loops = [
                Loop(spec, context.telemetry, context.dice)
                for spec in self._choose_loops(scheduler=scheduler, executor=executor)
            ]
            tasks = {
                loop.name: asyncio.create_task(loop.run(), name=f"syncline {loop.name}")
                for loop in self._loops
            }
            watchdog = Watchdog(self._worker.runs.provider_of, context.telemetry)
            with watchdog.watching():
                try:
                    await self._stop.wait()
                finally:
                    clean = await self._shut_down(tasks)
        return clean

    def ailing(self) -> dict[str, str]:
        """Return the loops that keep failing or make no progress, and why."""
        ill = {loop.name: loop.trouble for loop in self._loops if loop.trouble is not None}
        if self._worker.settle_queue.trouble is not None:
            ill["settle"] = self._worker.settle_queue.trouble
        return ill

    async def _shut_down(self, tasks: dict[str, "asyncio.Task[None]"]) -> bool:
        """Claim no more, let running jobs end, and only then stop renewing leases."""
        deadline = monotonic() + self._context.settings.executor.shutdown_grace_seconds
        await self._stop_taking(tasks, deadline)
        clean = await self._worker.executor.drain(max(deadline - monotonic(), 0))
        if clean:  # otherwise the database is away, and waiting for it is pointless
            await self._end_beat(tasks["beat"])
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        self._wakeup.close()
        if clean:
            await self._leave(self._upkeep.figures.finish, deadline)
            await self._leave(self._upkeep.heartbeat.leave, deadline)
        if "scheduler" in tasks:
            await self._leave(self._scheduler.leave, deadline)
            self._context.telemetry.scheduler_stopped()
        if "claim" in tasks:
            self._context.telemetry.executor_stopped()
        self._loops = []
        self._stop.clear()
        self._upkeep.bulk.start()
        self._scheduler.start()  # a later `tick()` on this engine must work
        self._worker.executor.resume_claiming()
        return clean

    async def _stop_taking(self, tasks: dict[str, "asyncio.Task[None]"], deadline: float) -> None:
        """Let every step in progress end and start no other, except in `KEPT_LOOPS`."""
        self._scheduler.stop()
        self._upkeep.heartbeat.stop()
        self._upkeep.bulk.stop()
        self._worker.executor.stop_claiming()
        for loop in self._loops:
            if loop.name not in KEPT_LOOPS:
                loop.stop()
            elif loop.name == "beat":
                loop.wake()
        taking = [task for name, task in tasks.items() if name not in KEPT_LOOPS]
        if taking:
            await asyncio.wait(taking, timeout=max(deadline - monotonic(), 1))

    async def _end_beat(self, beating: "asyncio.Task[None]") -> None:
        """Let a heartbeat in progress end: cancelled, it might rewrite its row after `leave`."""
        for loop in self._loops:
            if loop.name == "beat":
                loop.stop()
        await asyncio.wait([beating], timeout=1)

    async def _leave(self, leave: Callable[[], Awaitable[None]], deadline: float) -> None:
        with contextlib.suppress(Exception):  # a process that cannot sign off is forgotten later
            async with asyncio.timeout(max(deadline - monotonic(), 1)):
                await leave()

    def _choose_loops(self, *, scheduler: bool, executor: bool) -> list[LoopSpec]:
        upkeep, settings = self._upkeep, self._context.settings
        first_round = settings.retention.first_round
        loops = [
            LoopSpec("beat", upkeep.heartbeat.beat, BEAT_EVERY),
            LoopSpec("maintain", upkeep.maintenance.step, MAINTAIN_EVERY),
            LoopSpec("prune", upkeep.pruner.step, ROUND_EVERY, first_pause=first_round),
            LoopSpec("bulk", upkeep.bulk.step, LOOK_EVERY, wake=upkeep.bulk.wake),
        ]
        if executor:
            loops.append(LoopSpec("figures", upkeep.figures.step, WRITE_EVERY))
        if upkeep.embedded is not None:
            loops.append(LoopSpec("embedded", self._keep_database))
        if scheduler:
            pause = settings.scheduler.tick_interval
            loops.append(LoopSpec("scheduler", self._scheduler.step, pause))
        if executor:
            loops += self._worker.loops()
            if self._wakeup.is_on:
                loops.append(LoopSpec("listen", self._wakeup.step))
        return loops

    async def _keep_database(self) -> timedelta:
        """Restart the embedded Postgres if it has died; nothing else would."""
        if self._upkeep.embedded is not None:
            await self._upkeep.embedded.ensure_running()
        return CHECK_DATABASE_EVERY

    @contextmanager
    def _owned_process(self) -> Iterator[None]:
        """Handle the signals of the process, and tune its garbage collector."""
        with RARE_COLLECTIONS, self._signal_handlers():
            yield

    @contextmanager
    def _signal_handlers(self) -> Iterator[None]:
        """Stop at the first signal, exit at once at the second; restore the old handlers."""
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
