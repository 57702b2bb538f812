"""A calm simulated world with one engine, to be driven step by step."""

import asyncio
import random
from collections.abc import Coroutine
from contextlib import ExitStack, closing
from typing import Any, TypeVar

from simulation.life import START
from simulation.link import Fate, Link
from simulation.loop import Process, SimulatedLoop
from simulation.network import SimulatedNetwork
from simulation.observer import Observer
from simulation.wire import Request
from simulation.workers import context_of
from syncline import Connector, Engine, Settings
from syncline.testing import ManualClock

Result = TypeVar("Result")


class Calm:
    """Everybody in turn, and nothing ever breaks."""

    def choose(self, count: int) -> int:
        return 0

    def fate_of(self, link: Link, request: Request) -> Fate:
        return Fate.PASS


class Stage:
    def __init__(self, url: str, connector: Connector, **executor: Any) -> None:
        self._url = url
        self._connector = connector
        self._resources = ExitStack()
        self._dead: list[Process] = []
        self._context = context_of(Process("engine"))
        self.clock = ManualClock(START)
        self.engine = self._make_engine(**executor)
        self.observer = self._resources.enter_context(closing(Observer(url)))
        self.network = SimulatedNetwork(self.observer, Calm(), lambda: None)
        self._loop = SimulatedLoop(self.clock, self.network)
        self._runner = self._resources.enter_context(
            asyncio.Runner(loop_factory=lambda: self._loop)
        )
        self._resources.enter_context(self._loop.deciding_time())
        self.do(self.engine.__aenter__())

    def do(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self._runner.run(work, context=self._context)

    async def claim_and_die(self, is_called: asyncio.Event) -> None:
        """Let a worker claim one job, where any is due, and die in its connector's call."""
        process = Process("worker")
        self._dead.append(process)
        work = self._loop.create_task(self._work_alone(), context=context_of(process))
        dies = asyncio.create_task(is_called.wait())
        await asyncio.wait((work, dies), return_when=asyncio.FIRST_COMPLETED)
        dies.cancel()
        if is_called.is_set():
            self.network.kill(process)

    def close(self) -> None:
        self.do(self.engine.__aexit__(None, None, None))
        self.network.end()
        for process in self._dead:
            process.thaw(self._loop)
        self._resources.close()

    async def _work_alone(self) -> None:
        async with self._make_engine(concurrency=1) as engine:
            await engine.run_due()

    def _make_engine(self, **executor: Any) -> Engine:
        settings = Settings(database_url=self._url, portable=True, executor=executor)
        return Engine(settings, [self._connector], clock=self.clock, rng=random.Random(1))
