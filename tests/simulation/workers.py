"""The simulated worker processes: each an engine with its loops; whoever dies is replaced."""

import asyncio
import random
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass

from simulation.loop import PROCESS, Process, SimulatedLoop
from simulation.network import SimulatedNetwork
from syncline import Engine
from syncline.store.errors import is_passing

LONGEST_ABSENCE_SECONDS = 15


@dataclass(frozen=True, slots=True)
class Role:
    scheduler: bool = True
    executor: bool = True


CREWS: Sequence[Sequence[Role]] = (
    (Role(), Role()),
    (Role(), Role(), Role(scheduler=False)),
    (Role(executor=False), Role(executor=False), Role(scheduler=False), Role(scheduler=False)),
)


class Workers:
    """Who works now, and who takes the place of those who die or stop."""

    def __init__(
        self,
        loop: SimulatedLoop,
        network: SimulatedNetwork,
        make_engine: Callable[[], Engine],
        rng: random.Random,
    ) -> None:
        self._loop = loop
        self._network = network
        self._make_engine = make_engine
        self._rng = rng
        self._roles: dict[Process, Role] = {}
        self._engines: dict[Process, Engine] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.failure: BaseException | None = None
        network.on_death = self._replace

    @property
    def awake(self) -> list[Process]:
        return [process for process in self._roles if not process.is_frozen]

    def start(self, role: Role) -> None:
        process = Process(f"worker {len(self._roles) + 1}")
        self._roles[process] = role
        task = self._loop.create_task(self._work(process, role), context=context_of(process))
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._note_end(process, done))

    def stop(self, process: Process) -> None:
        """Ask a worker to leave in an orderly way, as SIGTERM does."""
        if engine := self._engines.get(process):
            self._network.note("stop", process.name)
            engine.stop()

    def freeze(self, process: Process, seconds: float) -> None:
        """Stop a worker as SIGSTOP does; a transaction it has open is ended by the server."""
        self._network.freeze(process)
        self._loop.call_later(seconds, self.thaw, process)

    def thaw(self, process: Process) -> None:
        if process.is_frozen and not process.is_dead:
            process.thaw(self._loop)

    def thaw_all(self, *, the_dead_too: bool = False) -> None:
        for process in self._roles:
            if the_dead_too:
                process.thaw(self._loop)
            else:
                self.thaw(process)

    async def _work(self, process: Process, role: Role) -> None:
        async with self._make_engine() as engine:
            self._engines[process] = engine
            await engine.run(handle_signals=False, scheduler=role.scheduler, executor=role.executor)

    def _note_end(self, process: Process, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not is_passing(error):
            self.failure = error
        self._replace(process)

    def _replace(self, process: Process) -> None:
        seconds = self._rng.uniform(0, LONGEST_ABSENCE_SECONDS)
        role = self._roles[process]
        self._loop.call_later(seconds, self.start, role, context=Context())


def context_of(process: Process) -> Context:
    """Return a context in which everything belongs to the process."""
    context = copy_context()
    context.run(PROCESS.set, process)
    return context
