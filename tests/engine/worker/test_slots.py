"""How many jobs run at once: a number, or as many as the loop and the database allow."""

import asyncio
import threading
from collections import Counter
from typing import Any

import pytest

from support.fakes import HeldRun, eventually
from support.runs import make_run, make_runs
from support.world import EMPTY_PAGE, World
from syncline import Connection, Connector, SyncResult
from syncline.engine.worker.slots import GrowingSlots, Slots, count_cores
from syncline.policy.concurrency import FLOOR, MOST_THREADS, PAGE_BYTES
from syncline.sdk.page import Page

AT_ONCE = 0.001


class Blocking(Connector):
    """Waits in a thread, like a library that knows no event loop."""

    provider = "blocking"

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.calls = 0

    def sync(self, connection: Connection, cursor: Any) -> SyncResult:
        self.calls += 1
        self.let_go.wait(60)
        return SyncResult()


class Quick(Connector):
    provider = "quick"

    async def sync(self, connection: Connection, cursor: Any) -> SyncResult:
        return SyncResult()


class Program(Connector):
    """Stands for a connector that starts a program for each run."""

    provider = "program"
    runs_programs = True

    def __init__(self) -> None:
        self.let_go = asyncio.Event()

    async def sync(self, connection: Connection, cursor: Any) -> SyncResult:
        await self.let_go.wait()
        return SyncResult()


def test_every_run_that_ends_adds_slots_while_more_is_due() -> None:
    slots = GrowingSlots(["quick"], max_run_seconds=300)
    limits = []
    for _ in range(3):
        end_runs(slots, 25)
        slots.end_claim(is_full=True, seconds=AT_ONCE)
        limits.append(slots.limit)
    assert limits == [150, 250, 350]

    end_runs(slots, 25)
    slots.end_claim(is_full=False, seconds=AT_ONCE)
    assert slots.limit == 350


@pytest.mark.parametrize("trouble", ["loop", "claim", "settle", "runs", "pages"])
def test_slots_do_not_grow_into_trouble(trouble: str) -> None:
    slots = GrowingSlots(["quick"], max_run_seconds=300)
    end_runs(slots, 1000)
    slots.end_claim(is_full=True, seconds=AT_ONCE)
    assert slots.limit == 4050

    end_runs(slots, 1000, seconds=20 if trouble == "runs" else AT_ONCE)
    if trouble == "loop":
        slots.record_turn(began=slots.asked)  # which was long ago
    elif trouble == "settle":
        slots.record_settled(1)
    elif trouble == "pages":
        end_runs(slots, 1000, page_bytes=PAGE_BYTES // 100)
    slots.end_claim(is_full=True, seconds=1 if trouble == "claim" else AT_ONCE)
    assert slots.limit <= 4050


def test_a_run_counts_with_its_largest_page() -> None:
    """Eight thousand runs with megabytes each would not fit into memory."""
    recorded = []

    class Recording(Slots):
        def record_run(self, seconds: float, page_bytes: int) -> None:
            recorded.append(page_bytes)

    slots, runs = Recording(["github"], 9), make_runs()
    for largest, ending in ((0, Page()), (700, Page())):
        run = make_run()
        run.slots, run.has_slot, run.largest_page = slots, True, largest
        run.end(ending)
        runs.free(run)
    assert recorded == [0, 700]


async def test_slots_start_at_the_floor_and_grow_by_themselves(world: World) -> None:
    runs = [HeldRun(EMPTY_PAGE) for _ in range(FLOOR + 20)]
    world.script(*runs)
    for _ in runs:
        await world.job(await world.connection())

    running = asyncio.create_task(world.run_due())
    await asyncio.gather(*(run.started.wait() for run in runs[:FLOOR]))
    assert await count_jobs(world) == {"running": FLOOR, "queued": 20}
    for run in runs[:20]:
        run.let_go.set()
    await asyncio.gather(*(run.started.wait() for run in runs))
    for run in runs:
        run.let_go.set()
    assert await running == FLOOR + 20


async def test_a_burst_makes_more_slots_and_a_number_fixes_them(world: World) -> None:
    await add_jobs(world, "quick", 600)
    async with world.another_engine([Quick()], executor={"concurrency": 20}) as fixed:
        executor = fixed.engine._worker.executor
        assert await executor.claim_and_start() == 20
        assert await fixed.run_due() == 600
        assert (executor.limit, len(executor.slots)) == (20, 1)

    await add_jobs(world, "quick", 600)
    async with world.another_engine([Quick()]) as growing:
        assert growing.engine._worker.executor.limit == FLOOR
        assert await growing.run_due() == 600
        assert growing.engine._worker.executor.limit > FLOOR


async def test_blocking_connectors_take_few_threads_and_hold_nobody_up(world: World) -> None:
    """A job that no thread is free for stays queued, for whoever has one."""
    blocking = Blocking()
    await add_jobs(world, "blocking", MOST_THREADS + 10)
    await add_jobs(world, "quick", 100)
    async with world.another_engine([blocking, Quick()]) as worker:
        running = asyncio.create_task(worker.run_due())

        async def quick_ones_have_ended() -> bool:
            return await count_jobs(world, "quick") == {"succeeded": 100}

        async def threads_are_taken() -> bool:
            return blocking.calls == MOST_THREADS

        try:
            await eventually(quick_ones_have_ended)
            await eventually(threads_are_taken)
            by_status = await count_jobs(world, "blocking")
        finally:
            blocking.let_go.set()
        assert by_status == {"running": MOST_THREADS, "queued": 10}
        assert await running == MOST_THREADS + 110


async def test_programs_are_started_by_the_number_of_cores(world: World) -> None:
    program, most = Program(), 2 * count_cores()
    await add_jobs(world, "program", most + 3)
    async with world.another_engine([program, Quick()]) as worker:
        running = asyncio.create_task(worker.run_due())

        async def as_many_run() -> bool:
            return (await count_jobs(world, "program")).get("running") == most

        await eventually(as_many_run)
        assert await worker.engine._worker.executor.claim_and_start() == 0
        program.let_go.set()
        assert await running == most + 3


async def test_a_run_that_ends_has_its_own_kind_looked_for(world: World) -> None:
    """The other kinds are asked for at the usual pace: nothing has changed for them."""
    async with world.another_engine(
        [Quick(), Blocking()], executor={"poll_interval_seconds": 60}
    ) as worker:
        executor = worker.engine._worker.executor
        quick, blocking = executor.slots
        await executor.step()
        asked = blocking.asked
        assert asked > 0

        quick.is_changed = True
        await executor.step()
        assert (quick.asked > asked, blocking.asked) == (True, asked)
        await executor.step()  # something else ended the pause
        assert blocking.asked > asked


def end_runs(slots: Slots, count: int, *, seconds: float = AT_ONCE, page_bytes: int = 0) -> None:
    for _ in range(count):
        slots.record_run(seconds, page_bytes)


async def add_jobs(world: World, provider: str, count: int) -> None:
    await world.sql(
        "WITH added AS (INSERT INTO {schema}.connections (tenant_id, provider_slug, external_id)"
        " SELECT 'acme', $1, gen_random_uuid()::text FROM generate_series(1, $2::int)"
        " RETURNING id)"
        " INSERT INTO {schema}.sync_jobs"
        " (tenant_id, provider_slug, connection_id, scheduled_at)"
        " SELECT 'acme', $1, id, '2025-01-01 00:00+00' FROM added",
        provider,
        count,
    )


async def count_jobs(world: World, provider: str = "github") -> dict[str, int]:
    rows = await world.sql(
        "SELECT status FROM {schema}.sync_jobs WHERE provider_slug = $1", provider
    )
    return dict(Counter(row["status"] for row in rows))


async def test_a_step_that_is_told_to_stop_claims_for_no_other_kind(world: World) -> None:
    async with world.another_engine([Quick(), Blocking()]) as worker:
        executor = worker.engine._worker.executor
        first, second = executor.slots
        step = asyncio.create_task(executor.step())
        await eventually(lambda: first.asked > 0)
        executor.stop_claiming()
        await asyncio.wait_for(step, 10)

        assert second.asked == 0
