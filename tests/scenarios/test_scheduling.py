"""Every active connection that is due gets one incremental job, and never a second one."""

import pytest

from support.world import World, at


async def test_active_connection_receives_incremental_job(world: World) -> None:
    """Interval Scheduler Loop / Active connection receives incremental job"""
    connection = await world.connection(
        tenant="T", last_finished="12:00", sync={"next_run_at": "2025-01-01T12:15:00Z"}
    )

    await world.tick("12:15", jitter_seconds=45)

    job = await world.pending(connection)
    assert (job.job_type, job.status) == ("incremental", "queued")
    assert job.scheduled_at == at("12:15:45")
    assert await world.next_run(connection) == at("12:30") > job.scheduled_at


@pytest.mark.parametrize("status", ["queued", "running"])
async def test_duplicate_pending_job_prevented(world: World, status: str) -> None:
    """Interval Scheduler Loop / Duplicate pending job prevented"""
    connection = await world.connection(last_finished="10:00", sync={"cursor": 7})
    insert = world.running_job if status == "running" else world.job
    job_id = await insert(connection)
    metadata = await world.sync_metadata(connection)

    report = await world.tick("12:15")

    assert (await world.pending(connection)).id == job_id
    assert (report.scheduled, report.skipped) == (0, 1)
    assert await world.sync_metadata(connection) == metadata


async def test_completed_jobs_do_not_block_new_scheduling(world: World) -> None:
    """Sync Jobs Partial Unique Index / Completed jobs don't block new scheduling"""
    connection = await world.connection()
    completed = await world.job(connection, status="completed", finished_at=at("12:00"))

    await world.tick("12:15", jitter_seconds=0)

    job = await world.pending(connection)
    assert job.id != completed
    assert job.scheduled_at == at("12:15")
    assert await world.next_run(connection) == at("12:30")
