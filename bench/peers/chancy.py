"""chancy: its async executor, 5000 jobs at once, eager polling, no default plugins.

python -m bench.peers.chancy drain|latency URL COUNT
"""

import asyncio
import logging
import sys
import time

import psycopg
from chancy import Chancy, Job, Queue, Worker

from bench.measure import ENQUEUED_PER_SECOND, Stopwatch, Tally, report

CONCURRENCY = 5000
FLUSH_SECONDS = 0.1
PENDING = "SELECT EXISTS (SELECT FROM chancy_jobs WHERE state IN ('pending', 'running'))"

noted = None  # chancy finds a job by its importable name, so this cannot be a closure


async def noop():
    noted()


async def drain(chancy, url, count):
    global noted
    tally, session = Tally(count), await psycopg.AsyncConnection.connect(url, autocommit=True)
    noted = tally.job
    began = time.perf_counter()
    async for _ in chancy.push_many([Job.from_func(noop)] * count, batch_size=5000):
        pass
    enqueued = time.perf_counter() - began
    await session.execute("VACUUM ANALYZE")

    async def is_pending():
        return (await (await session.execute(PENDING)).fetchone())[0]

    async with eager_worker(chancy):
        figures = await tally.drained(is_pending)
    return figures | {ENQUEUED_PER_SECOND: count / enqueued}


async def latency(chancy, _url, count):
    global noted
    watch = Stopwatch()
    noted = watch.job
    async with eager_worker(chancy):
        await asyncio.sleep(2)  # until it listens
        return await watch.sample([lambda: chancy.push(Job.from_func(noop))] * count)


def eager_worker(chancy):
    """By default it writes finished jobs only once a second."""
    worker = Worker(chancy)
    worker.send_outgoing_interval = FLUSH_SECONDS
    return worker


async def main():
    workload, url, count = sys.argv[1:]
    logging.disable(logging.WARNING)
    async with Chancy(url, no_default_plugins=True, log=logging.getLogger("chancy")) as chancy:
        await chancy.migrate()
        queue = Queue(
            "default",
            concurrency=CONCURRENCY,
            executor=Chancy.Executor.Async,
            eager_polling=True,
            polling_interval=1,
        )
        await chancy.declare(queue, upsert=True)
        report(await {"drain": drain, "latency": latency}[workload](chancy, url, int(count)))


if __name__ == "__main__":
    asyncio.run(main())
