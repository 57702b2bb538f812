"""One pending job per connection and type, whoever inserts it and however many try."""

import asyncio

import asyncpg
import pytest

from support.world import World
from syncline import SyncResult


async def test_duplicate_interval_job_prevented_by_index(world: World) -> None:
    """Sync Jobs Partial Unique Index / Duplicate interval job prevented by index"""
    connection = await world.connection()
    job_id = await world.job(connection)

    with pytest.raises(asyncpg.UniqueViolationError) as refusal:
        await world.job(connection)

    assert refusal.value.sqlstate == "23505"
    assert (await world.pending(connection)).id == job_id


async def test_job_inserted_by_hand_while_a_tick_holds_the_connection(world: World) -> None:
    """Sync Jobs Partial Unique Index / Duplicate interval job prevented by index

    The tick has read that nothing is pending, and waits to insert, when the job comes.
    """
    connection = await world.connection(last_finished="12:00")
    metadata = await world.sync_metadata(connection)

    async with world.locked_table("sync_jobs") as person:
        ticking = asyncio.create_task(world.tick("12:15"))
        await world.blocked_session()
        await person.execute("SET LOCAL session_replication_role = 'replica'")  # no foreign key
        job_id = await world.job(connection, session=person)
    report = await ticking

    assert (report.scheduled, report.skipped) == (0, 1)
    assert (await world.pending(connection)).id == job_id
    assert await world.sync_metadata(connection) == metadata


async def test_different_job_types_allowed(world: World) -> None:
    """Sync Jobs Partial Unique Index / Different job types allowed"""
    connection = await world.connection()
    await world.job(connection)

    async with (
        world.during_run(),
        world.another_engine(executor={"single_flight": "job_type"}) as side_by_side,
    ):
        full = await world.engine.trigger(connection.id, job_type="full")
        ran_by_default = await world.run_due()
        waiting = await world.get_job(full.id)
        world.script(SyncResult())
        ran_side_by_side = await side_by_side.run_due()
        [incremental] = await world.jobs(connection, job_type="incremental")

    assert (ran_by_default, waiting.status) == (0, "queued")
    assert (ran_side_by_side, incremental.status) == (1, "running")
    assert (await world.get_job(full.id)).status == "succeeded"


async def test_parallel_schedulers_remain_race_free(world: World) -> None:
    """Interval Concurrency Guard / Parallel schedulers remain race-free"""
    connection = await world.connection(last_finished="12:00")

    async with world.another_engine() as other:
        reports = await asyncio.gather(world.tick("12:15"), other.tick("12:15"))

    assert sum(report.scheduled for report in reports) == 1
    job = await world.pending(connection)
    jitter = (await world.sync_metadata(connection))["last_jitter_seconds"]
    assert job.slot_at is not None
    assert (job.scheduled_at - job.slot_at).total_seconds() == jitter
    assert await world.next_run(connection) > job.scheduled_at
