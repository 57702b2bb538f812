"""Runs that bring nothing, the most common of all: their jobs end, and nothing else is touched.

All of these connections have run before; the first run of a new one leaves its time behind.
"""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from support.fakes import HeldRun, eventually
from support.sessions import actor
from support.world import World, at
from syncline import Connection, SyncResult

ROW = "SELECT xmin, c.* FROM {schema}.connections c"
HAS_RUN = "UPDATE {schema}.connections SET last_finished_at = '2025-01-01 11:30Z'"
OLDER = at("11:30")
ENDED = """
    SELECT FROM {schema}.sync_jobs WHERE id = ANY ($1::uuid[])
    HAVING bool_and(status = 'succeeded')
"""
CLOSED_TOGETHER = """
    SELECT count(*) AS size FROM {schema}.sync_jobs WHERE status = 'succeeded' GROUP BY xmin::text
"""


async def seasoned(world: World) -> Connection:
    connection = await world.connection()
    await world.sql(HAS_RUN)
    return connection


async def test_an_empty_run_leaves_its_connection_alone(world: World) -> None:
    connection = await seasoned(world)
    job_id = await world.job(connection, attempts=2, retry_after=OLDER, lapses=1)
    before = await world.sql(ROW)
    world.script(SyncResult())

    await world.run_due()

    job = await world.get_job(job_id)
    assert (job.status, job.finished_at, job.attempts) == ("succeeded", at("12:00"), 2)
    assert (job.retry_after, job.error) == (None, None)
    assert await world.sql(ROW) == before


async def test_an_empty_run_whose_lease_is_lost_closes_nothing(world: World) -> None:
    connection = await seasoned(world)
    job_id = await world.job(connection)

    async with world.during_run(SyncResult()) as run_of_a:
        world.clock.advance(seconds=31)
        async with world.during_run(SyncResult()):
            before = await world.get_job(job_id)
            await run_of_a.finish()

            assert await world.get_job(job_id) == before


async def test_an_empty_run_that_was_marked_is_followed_by_one_more(world: World) -> None:
    connection = await seasoned(world)
    await world.job(connection)

    async with world.during_run(SyncResult()):
        await world.engine.trigger(connection.id)

    assert (await world.pending(connection)).priority == 10


async def test_an_empty_run_ahead_of_its_slot_has_its_connection_looked_at(world: World) -> None:
    connection = await seasoned(world)
    await world.sql("UPDATE {schema}.connections SET look_at = '2025-01-01 13:00Z'")
    await world.job(connection, slot_at=at("12:10"))
    world.script(SyncResult())

    await world.run_due()

    [row] = await world.sql("SELECT look_at FROM {schema}.connections")
    assert row["look_at"].year == 1970


@pytest.mark.engine(executor={"concurrency": 1})
async def test_a_slot_is_free_once_its_connector_has_ended(world: World) -> None:
    """Somebody's lock holds up the settling of one connection, and no other's run."""
    held, other = await world.connection(), await world.connection()
    await world.job(held, scheduled_at=at("11:00"))
    await world.job(other, scheduled_at=at("11:30"))
    run_of_other = HeldRun(SyncResult())
    world.script(SyncResult(next_cursor=1), run_of_other)

    async with actor(world) as person:
        await person.lock(held)
        running = asyncio.create_task(world.engine.run(handle_signals=False, scheduler=False))
        await eventually(run_of_other.started.is_set)
    run_of_other.let_go.set()
    world.engine.stop()

    assert await running


async def test_empty_runs_that_end_while_others_are_closed_are_closed_together_next(
    world: World,
) -> None:
    """One task closes them at a time; where somebody's lock holds it up, another goes on."""
    runs = [HeldRun(SyncResult()) for _ in range(50)]
    world.script(*runs)
    times = [at("11:00") + timedelta(seconds=n) for n in range(50)]  # so they start in this order
    jobs = [await world.job(await seasoned(world), scheduled_at=time) for time in times]
    running = asyncio.create_task(world.engine.run(handle_signals=False, scheduler=False))
    await eventually(lambda: all(run.started.is_set() for run in runs))

    async with actor(world) as person:
        await person.lock_job(jobs[0])
        groups: list[Any] = []
        for run in runs:  # each that ends may be the one that starts another task
            run.let_go.set()
            await asyncio.sleep(0.02)
            if groups := await world.sql(CLOSED_TOGETHER):
                break
        assert max(group["size"] for group in groups) > 1
    for run in runs:
        run.let_go.set()
    world.engine.stop()

    assert await running
    assert await world.sql(ENDED, jobs)
