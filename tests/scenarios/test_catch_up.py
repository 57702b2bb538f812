"""Missed slots collapse into one run, on the latest slot that has passed."""

from support.world import Logged, World, at
from syncline import SyncResult


async def test_overdue_job_scheduled_immediately(world: World, logged: Logged) -> None:
    """Downtime Catch-up / Overdue job scheduled immediately"""
    connection = await world.connection(last_finished="10:00", sync={"interval_seconds": 900})

    await world.tick("10:20", jitter_seconds=30)

    job = await world.pending(connection)
    assert job.scheduled_at == at("10:15:30")
    assert await world.next_run(connection) == at("10:30")
    [plan] = logged("scheduler.job_scheduled")
    assert plan["next_due_at"] == at("10:30").isoformat()
    world.script(SyncResult())
    assert await world.run_due() == 1


async def test_normal_scheduling_when_current(world: World, logged: Logged) -> None:
    """Downtime Catch-up / Normal scheduling when current"""
    connection = await world.connection(last_finished="10:00", sync={"interval_seconds": 900})

    await world.tick("10:14", jitter_seconds=30)

    job = await world.pending(connection)
    assert job.scheduled_at == at("10:15:30")
    assert await world.next_run(connection) == at("10:30")
    [plan] = logged("scheduler.job_scheduled")
    assert plan["next_due_at"] == at("10:15").isoformat()
    assert await world.run_due() == 0
