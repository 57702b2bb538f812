"""The same drain shared by several worker processes."""

import asyncio
import multiprocessing
import time
from multiprocessing.synchronize import Barrier, Event
from typing import Any

from bench.measure import CPU_PER_JOB, JOBS_PER_SECOND, POLL_SECONDS, Figures, cpu_seconds
from bench.workloads.case import PENDING, Case, Counted, begin_measuring, running, vacuum
from bench.workloads.data import add_connections
from syncline import eventloop

PATIENCE_SECONDS = 60


async def drain_together(case: Case) -> Figures:
    """Start several processes at once, and time them until nothing is pending."""
    jobs, workers = case.size("jobs"), case.size("workers")
    async with case.engine(Counted(lambda: None)) as engine, case.session() as session:
        await add_connections(session, jobs)
        await engine.tick()
        await vacuum(session)
        await begin_measuring(session)
        crew = Crew(case, workers)
        try:
            seconds = await crew.drain(jobs, session)
        finally:
            cpu = await asyncio.to_thread(crew.dismiss)
        assert await engine.verify() == []
    return {JOBS_PER_SECOND: jobs / seconds, CPU_PER_JOB: cpu / jobs * 1e6}


class Crew:
    """Worker processes that wait for a signal to begin and a signal to end."""

    def __init__(self, case: Case, workers: int) -> None:
        spawn = multiprocessing.get_context("spawn")
        # One place for each process, so that none has to lock.
        self._started: Any = spawn.Array("q", workers, lock=False)
        self._cpu: Any = spawn.Array("d", workers, lock=False)
        self._go, self._end = spawn.Barrier(workers + 1), spawn.Event()
        shared = (self._started, self._cpu, self._go, self._end)
        self._processes = [
            spawn.Process(target=work, args=(case, place, *shared)) for place in range(workers)
        ]
        for process in self._processes:
            process.start()

    async def drain(self, jobs: int, session: Any) -> float:
        """Return the seconds from the start signal until nothing is pending."""
        await asyncio.to_thread(self._go.wait, PATIENCE_SECONDS)
        began = ended = time.perf_counter()
        # Querying the table while it is being drained would slow the drain down.
        while sum(self._started) < jobs:  # noqa: ASYNC110  (other processes set no event here)
            await asyncio.sleep(POLL_SECONDS)
        while await session.fetchval(PENDING):
            await asyncio.sleep(POLL_SECONDS)
            ended = time.perf_counter()
        return ended - began

    def dismiss(self) -> float:
        """End the processes, and return the processor time that they used."""
        self._end.set()
        for process in self._processes:
            process.join(PATIENCE_SECONDS)
            process.kill()
        return float(sum(self._cpu))


def work(
    case: Case,
    place: int,
    started: Any,
    cpu: Any,
    go: Barrier,
    end: Event,
) -> None:
    """Run one worker process."""

    def note() -> None:
        started[place] += 1

    async def serve() -> None:
        async with case.engine(Counted(note)) as engine:
            await asyncio.to_thread(go.wait, PATIENCE_SECONDS)
            used = cpu_seconds()
            async with running(engine, scheduler=False):
                await asyncio.to_thread(wait_for, end)
            cpu[place] = cpu_seconds() - used

    eventloop.run(serve())


def wait_for(end: Event) -> None:
    """Wait for the signal to end, or for the end of the parent process."""
    parent = multiprocessing.parent_process()
    while not end.wait(1) and parent is not None and parent.is_alive():
        pass
