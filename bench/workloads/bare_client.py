"""The calls of the workload `http` without an engine: aiohttp, one shared pool, 100 at once.

python -m bench.workloads.bare_client BASE_URL CERTIFICATE RUNS TARGETS HEADERS
"""

import asyncio
import json
import ssl
import sys
import time
from collections.abc import Iterator, Sequence

import aiohttp

from bench.measure import Figures, cpu_seconds, report
from syncline import eventloop

AT_ONCE = 100
CALLS_PER_SECOND = "calls/s"
CPU_PER_CALL = "client CPU, µs/call"


async def call(runs: int, targets: Sequence[str], session: aiohttp.ClientSession) -> Figures:
    """Make the calls of each run one after the other, those of 100 runs at once."""
    left = iter(range(runs))
    began, cpu = time.perf_counter(), cpu_seconds()
    await asyncio.gather(*(work(left, targets, session) for _ in range(AT_ONCE)))
    calls = runs * len(targets)
    return {
        CALLS_PER_SECOND: calls / (time.perf_counter() - began),
        CPU_PER_CALL: (cpu_seconds() - cpu) / calls * 1e6,
    }


async def work(left: Iterator[int], targets: Sequence[str], session: aiohttp.ClientSession) -> None:
    for _ in left:
        for target in targets:
            async with session.get(target) as response:
                content = await response.read()
            if content:
                json.loads(content)


async def main() -> None:
    base_url, certificate, runs, targets, headers = sys.argv[1:]
    connector = aiohttp.TCPConnector(
        limit=AT_ONCE, ssl=ssl.create_default_context(cafile=certificate)
    )
    async with aiohttp.ClientSession(
        base_url, connector=connector, headers=json.loads(headers)
    ) as session:
        report(await call(int(runs), json.loads(targets), session))


if __name__ == "__main__":
    eventloop.run(main())
