"""pgqueuer: asyncpg, uvloop, batches of 500, its own autovacuum profile.

python -m bench.peers.pgqueuer drain|latency URL COUNT
"""

import asyncio
import logging
import sys
import time
from contextlib import asynccontextmanager

import asyncpg
import uvloop
from pgqueuer.db import AsyncpgDriver
from pgqueuer.qm import QueueManager
from pgqueuer.queries import Queries

from bench.measure import ENQUEUED_PER_SECOND, Stopwatch, Tally, report

BATCH = 500
ENQUEUE_BATCH = 10_000
PENDING = "SELECT EXISTS (SELECT FROM pgqueuer)"


async def drain(url, count):
    producer, session = await connected_queries(url), await asyncpg.connect(url)
    began = time.perf_counter()
    for first in range(0, count, ENQUEUE_BATCH):
        size = min(ENQUEUE_BATCH, count - first)
        await producer.enqueue(["noop"] * size, [None] * size, [0] * size)
    enqueued = time.perf_counter() - began
    await session.execute("VACUUM ANALYZE")
    tally = Tally(count)
    async with working(url, tally.job):
        figures = await tally.drained(lambda: session.fetchval(PENDING))
    return figures | {ENQUEUED_PER_SECOND: count / enqueued}


async def latency(url, count):
    producer, watch = await connected_queries(url), Stopwatch()
    async with working(url, watch.job):
        await asyncio.sleep(1)  # until it listens
        return await watch.sample([lambda: producer.enqueue("noop", None)] * count)


async def connected_queries(url):
    return Queries(AsyncpgDriver(await asyncpg.connect(url)))


@asynccontextmanager
async def working(url, noted):
    manager = QueueManager(await connected_queries(url))

    @manager.entrypoint("noop")
    async def noop(_job):
        noted()

    worker = asyncio.create_task(manager.run(batch_size=BATCH))
    yield
    manager.shutdown.set()
    await worker


async def main():
    workload, url, count = sys.argv[1:]
    logging.disable(logging.WARNING)
    queries = await connected_queries(url)
    await queries.install()
    await queries.optimize_autovacuum()
    report(await {"drain": drain, "latency": latency}[workload](url, int(count)))


if __name__ == "__main__":
    uvloop.run(main())
