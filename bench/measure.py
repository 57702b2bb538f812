"""How every contender is measured; only the standard library, because each has its environment."""

import asyncio
import json
import resource
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

Figures = dict[str, float]

JOBS_PER_SECOND = "jobs/s"
CPU_PER_JOB = "client CPU, µs/job"
ENQUEUED_PER_SECOND = "enqueued/s"
P50, P99 = "p50, ms", "p99, ms"
POLL_SECONDS = 0.005
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

    async def drained(self, is_pending: Callable[[], Awaitable[bool]]) -> Figures:
        """Return the rates from the first start until the database shows nothing pending."""
        await self.all_started.wait()
        ended = time.perf_counter()
        while await is_pending():  # the time of this query is not counted
            await asyncio.sleep(POLL_SECONDS)
            ended = time.perf_counter()
        return {
            JOBS_PER_SECOND: self.expected / (ended - self._began),
            CPU_PER_JOB: (cpu_seconds() - self._cpu) / self.expected * 1e6,
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
