"""How every contender is measured; only the standard library, because each has its environment."""

import asyncio
import json
import os
import resource
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path

Figures = dict[str, float]

JOBS_PER_SECOND = "jobs/s"
CPU_PER_JOB = "client CPU, µs/job"
ENQUEUED_PER_SECOND = "enqueued/s"
P50, P99 = "p50, ms", "p99, ms"
POLL_SECONDS = 0.005
PARENT, OWN_TIME, CHILDREN_TIME = 0, 10, 12  # places in what `_stat` returns
PAUSE_SECONDS = 0.02  # between two samples of the latency, so that the worker is idle again


class Tally:
    """Counts jobs as they start, from the first to the last."""

    def __init__(self, expected: int) -> None:
        self.expected = expected
        self.started = 0
        self.all_started = asyncio.Event()
        self._began = self._cpu = 0.0

    def job(self) -> None:
        """Note that a job has started; the job calls it."""
        if not self.started:
            self._began, self._cpu = time.perf_counter(), cpu_seconds()
        self.started += 1
        if self.started == self.expected:
            self.all_started.set()

    async def drained(
        self, is_pending: Callable[[], Awaitable[bool]], *, at_most: float | None = None
    ) -> Figures:
        """Return the rates from the first start until the database shows nothing pending.

        After `at_most` seconds, the jobs that have started until then count.
        """
        try:
            async with asyncio.timeout(at_most):
                await self.all_started.wait()
        except TimeoutError:
            return self._rates(time.perf_counter())
        ended = time.perf_counter()
        while await is_pending():  # the time of this query is not counted
            await asyncio.sleep(POLL_SECONDS)
            ended = time.perf_counter()
        return self._rates(ended)

    def _rates(self, ended: float) -> Figures:
        assert self.started, "no job has started"
        return {
            JOBS_PER_SECOND: self.started / (ended - self._began),
            CPU_PER_JOB: (cpu_seconds() - self._cpu) / self.started * 1e6,
        }


class Stopwatch:
    """Times single jobs from the start of the call that enqueues them to their own start."""

    def __init__(self) -> None:
        self._started = asyncio.Event()
        self._at = 0.0

    def job(self) -> None:
        """Note that the job has started; the job calls it."""
        self._at = time.perf_counter()
        self._started.set()

    async def sample(self, enqueues: Sequence[Callable[[], Awaitable[object]]]) -> Figures:
        """Return the percentiles over the calls, made one at a time."""
        milliseconds = []
        for enqueue in enqueues:
            self._started.clear()
            began = time.perf_counter()
            await enqueue()
            async with asyncio.timeout(30):
                await self._started.wait()
            milliseconds.append((self._at - began) * 1000)
            await asyncio.sleep(PAUSE_SECONDS)
        return {P50: percentile(milliseconds, 0.5), P99: percentile(milliseconds, 0.99)}


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that the given share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def cpu_seconds() -> float:
    """Return the processor time of this process so far, in user and system mode."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def server_cpu_seconds(backend: int) -> float:
    """Return the processor time of a Postgres on this machine, given one of its processes.

    A process that has ended counts among the children of the first one, so nothing is lost.
    """
    parent = _stat(backend)[PARENT]
    ticks = sum(_stat(parent)[OWN_TIME : CHILDREN_TIME + 2])
    for entry in Path("/proc").iterdir():
        with suppress(OSError):  # it has ended since
            if entry.name.isdigit() and (fields := _stat(int(entry.name)))[PARENT] == parent:
                ticks += sum(fields[OWN_TIME : OWN_TIME + 2])
    return ticks / os.sysconf("SC_CLK_TCK")


def _stat(process: int) -> list[int]:
    """Return the numbers of `/proc/…/stat` after the name, which may have spaces."""
    text = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2]
    return [int(field) for field in text.split()[1:]]  # the first one is a letter


def resident_megabytes() -> float:
    """Return the memory of this process now, or its peak if only that is known."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return pages * resource.getpagesize() / 1e6


def report(figures: Figures) -> None:
    """Print the figures for the harness, as the last line of the output."""
    sys.stdout.write(json.dumps(figures) + "\n")
