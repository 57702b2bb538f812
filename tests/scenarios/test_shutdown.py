"""Stopping leaves nothing half done, and an interrupted job goes back as it was."""

import asyncio

import pytest

from support.fakes import HeldRun
from support.world import Logged, World
from syncline import SyncResult


@pytest.mark.engine(scheduler={"batch_size": 1})
async def test_scheduler_stops_polling_on_shutdown(world: World, logged: Logged) -> None:
    """Graceful Shutdown Handling / Scheduler stops polling on shutdown"""
    connections = [await world.connection(last_finished="11:00") for _ in range(3)]

    world.dice.on_roll = world.engine.stop  # while a batch is planned
    assert await world.engine.run(handle_signals=False, executor=False)

    planned = [c for c in connections if await world.jobs(c, status="queued")]
    assert len(planned) == 1
    assert [c for c in connections if "next_run_at" in await world.sync_metadata(c)] == planned
    assert len(logged("scheduler.stopped")) == 1
    assert len(logged("scheduler.tick")) == 1
    world.dice.on_roll = None
    assert (await world.tick()).scheduled == 2


@pytest.mark.engine(executor={"shutdown_grace_seconds": 0})
async def test_shutdown_releases_running_jobs(world: World) -> None:
    """Executor Shutdown / Shutdown releases running jobs"""
    connection = await world.connection()
    job_id = await world.job(connection, attempts=2)
    run = HeldRun(SyncResult())
    world.script(run)

    running = asyncio.create_task(world.engine.run(handle_signals=False, scheduler=False))
    await run.started.wait()
    world.engine.stop()
    assert await running

    assert run.was_stopped
    job = await world.get_job(job_id)
    assert (job.status, job.attempts, job.retry_after) == ("queued", 2, None)
    assert await world.sql("SELECT FROM {schema}.sync_jobs WHERE lease_token IS NOT NULL") == []
    world.script(SyncResult())
    assert await world.run_due() == 1
