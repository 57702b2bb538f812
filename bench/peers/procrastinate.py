"""procrastinate: 30 jobs at once, a pool of 20, uvloop, ANALYZE after the bulk defer.

python -m bench.peers.procrastinate drain|latency URL COUNT
"""

import asyncio
import logging
import sys
import time
from contextlib import asynccontextmanager

import psycopg
import uvloop
from procrastinate import App, PsycopgConnector

from bench.measure import ENQUEUED_PER_SECOND, Stopwatch, Tally, report

CONCURRENCY, POOL = 30, 20
ENQUEUE_BATCH = 10_000
PENDING = "SELECT EXISTS (SELECT FROM procrastinate_jobs WHERE status IN ('todo', 'doing'))"


async def drain(app, url, count):
    tally, session = Tally(count), await psycopg.AsyncConnection.connect(url, autocommit=True)
    noop = declare(app, tally.job)
    began = time.perf_counter()
    for first in range(0, count, ENQUEUE_BATCH):
        await noop.batch_defer_async(*[{}] * min(ENQUEUE_BATCH, count - first))
    enqueued = time.perf_counter() - began
    await session.execute("VACUUM ANALYZE")

    async def is_pending():
        return (await (await session.execute(PENDING)).fetchone())[0]

    async with working(app):
        figures = await tally.drained(is_pending)
    return figures | {ENQUEUED_PER_SECOND: count / enqueued}


async def latency(app, _url, count):
    watch = Stopwatch()
    noop = declare(app, watch.job)
    async with working(app):
        await asyncio.sleep(1)  # until it listens
        return await watch.sample([noop.defer_async] * count)


def declare(app, noted):
    @app.task(name="noop")
    async def noop():
        noted()

    return noop


@asynccontextmanager
async def working(app):
    worker = asyncio.create_task(
        app.run_worker_async(concurrency=CONCURRENCY, install_signal_handlers=False)
    )
    yield
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)


async def main():
    workload, url, count = sys.argv[1:]
    logging.disable(logging.WARNING)
    connector = PsycopgConnector(conninfo=url, min_size=POOL, max_size=POOL)
    async with App(connector=connector).open_async() as app:
        await app.schema_manager.apply_schema_async()
        report(await {"drain": drain, "latency": latency}[workload](app, url, int(count)))


if __name__ == "__main__":
    uvloop.run(main())
