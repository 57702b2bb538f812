"""How soon a triggered job starts."""

import asyncio
from functools import partial

from bench.measure import Figures, Stopwatch
from bench.workloads.case import Case, Counted, begin_measuring, running
from bench.workloads.data import add_connections


async def latency(case: Case) -> Figures:
    """From the call of `trigger` to the start of the job, on an idle worker."""
    watch = Stopwatch()
    async with case.engine(Counted(watch.job)) as engine, case.session() as session:
        await add_connections(session, case.size("samples"))
        ids = [row["id"] for row in await session.fetch("SELECT id FROM syncline.connections")]
        async with running(engine, scheduler=False):
            await asyncio.sleep(1)  # until it listens
            await begin_measuring(session)
            return await watch.sample([partial(engine.trigger, one) for one in ids])
