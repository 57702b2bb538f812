"""What fairness costs: nothing to those who do not use it, little to the others."""

import asyncio
import statistics
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from faults.waiting import until

from fairness.cases import Case
from fairness.connector import Nap
from fairness.measure import Figure
from fairness.stage import Stage
from syncline import Engine, Settings

JOBS, TENANTS, ROUNDS = 60_000, 100, 2
FLOODS_JOBS = 55_000  # of them, beside many small tenants
MILLION = 1_000_000
SMALL_TENANTS, SLOTS, LOOKS = 10, 50, 60
NOT_LIMITING = 100_000

FINISHED = """
    SELECT extract(epoch FROM finished_at)::float8 AS at FROM syncline.sync_jobs
     WHERE finished_at IS NOT NULL ORDER BY 1
"""
LEFT = "SELECT count(*) FROM syncline.sync_jobs WHERE status IN ('queued', 'running')"
GIVE_BACK = """
    UPDATE syncline.sync_jobs SET status = 'queued', lease_token = NULL, lease_expires_at = NULL
     WHERE lease_token = $1
"""


@dataclass(frozen=True, slots=True)
class Kind:
    """A drain: with fair shares or without, with a flood, or with a cap that is never reached."""

    is_fair: bool = True
    flood: int = 0
    cap: int = 0


async def unused(stage: Stage) -> list[Figure]:
    """Drain one queue after the other, in turn; of each kind the fastest counts."""
    kinds = {
        "off": Kind(is_fair=False),
        "nobody": Kind(),
        "caps": Kind(cap=NOT_LIMITING),
        "flood, off": Kind(is_fair=False, flood=FLOODS_JOBS),
        "flood": Kind(flood=FLOODS_JOBS),
    }
    rates: dict[str, float] = dict.fromkeys(kinds, 0.0)
    for number in range(ROUNDS):
        for name, kind in kinds.items():
            rates[name] = max(rates[name], await drain(stage, f"{name}-{number}", kind))
    return [
        Figure("drain, nobody uses it ÷ off", rates["nobody"] / rates["off"], at_least=0.98),
        Figure("with a flood ÷ off", rates["flood"] / rates["flood, off"], at_least=0.9),
        Figure("with caps ÷ off", rates["caps"] / rates["off"], at_least=0.8),
        Figure("jobs per second, off", round(rates["off"])),
    ]


async def drain(stage: Stage, name: str, kind: Kind) -> float:
    """Return how many jobs a second one worker runs, without the first and the last."""
    async with stage.beside(name.replace(", ", "-")) as one:
        one.nap_seconds = 0
        one.settings |= {"EXECUTOR__CONCURRENCY": 500, "EXECUTOR__LEASE_SECONDS": 30}
        one.settings["FAIRNESS__ENABLED"] = kind.is_fair
        if kind.cap:
            await one.command("providers", "set", "nap", "--max-running", str(kind.cap))
        await one.queue_jobs({"tenant": (TENANTS, JOBS - kind.flood), "flood": (1, kind.flood)})
        one.start()
        times = await finish_times(one)
    first, last = len(times) // 20, len(times) * 19 // 20
    return (last - first) / (times[last] - times[first])


async def finish_times(stage: Stage) -> Sequence[float]:
    async def is_drained() -> bool:
        await asyncio.sleep(0.3)
        return bool(await stage.value(LEFT) == 0)

    await until(is_drained, within=60, what="an empty queue")
    return [row["at"] for row in await stage.database.fetch(FINISHED)]


async def long_queue(stage: Stage) -> list[Figure]:
    """Claim beside a million jobs of one tenant, and in turn beside none."""
    async with stage.beside("empty") as empty:
        for one, jobs in ((stage, MILLION), (empty, 0)):
            await one.queue_jobs({"small": (SMALL_TENANTS, SLOTS), "flood": (1, jobs)})
        async with AsyncExitStack() as engines:
            behind, alone = [
                await engines.enter_async_context(
                    Engine(Settings(database_url=one.url, executor={"concurrency": SLOTS}), [Nap()])
                )
                for one in (stage, empty)
            ]
            costs: dict[Engine, list[float]] = {behind: [], alone: []}
            for _ in range(LOOKS):
                for engine, seconds in costs.items():
                    seconds.append(await claim_and_give_back(engine))
    behind_a_million, of_none = (statistics.median(one[5:]) for one in costs.values())
    return [
        Figure("claim ÷ with an empty queue", behind_a_million / of_none, 1.3),
        Figure("claim", behind_a_million * 1000, unit="ms"),
        Figure("with an empty queue", of_none * 1000, unit="ms"),
    ]


async def claim_and_give_back(engine: Engine) -> float:
    """Return how long a claim of as many jobs as there are slots took."""
    executor: Any = engine._worker.executor
    claimer = executor._claimers[executor.slots[0]]
    pool: Any = engine._pool
    async with pool.session() as session:
        began = time.perf_counter()
        batch = await claimer.claim(session, SLOTS, with_poison_job=False)
        seconds = time.perf_counter() - began
    assert len(batch.rows) == SLOTS, len(batch.rows)
    async with pool.transaction() as tx:
        await tx.execute(GIVE_BACK, batch.token)
    return seconds


CASES = (
    Case(
        "unused",
        "a drain is as fast as without fair shares, and little slower with floods and caps",
        (),
        unused,
        group=2,
        is_quick=False,
    ),
    Case(
        "a long queue",
        "a claim costs as much behind a million jobs as behind none",
        (),
        long_queue,
        is_quick=False,
    ),
)
