"""Due jobs are claimed in order, each once, and one per connection."""

import pytest

from support.world import World, at
from syncline import SyncResult
from syncline.testing import ScriptedConnector


async def test_claim_ordered_by_priority_and_time(world: World) -> None:
    """Job Claiming And Concurrency / Claim ordered by priority and time"""
    third, first, fourth, second = [await world.connection() for _ in range(4)]
    await world.job(third, priority=0, scheduled_at=at("11:00"))
    await world.job(first, priority=10, scheduled_at=at("11:59"))
    await world.job(fourth, priority=-5, scheduled_at=at("10:00"))
    await world.job(second, priority=0, scheduled_at=at("10:30"))

    world.script(*[SyncResult()] * 4)
    await world.run_due("12:00")

    started = [connection_id for connection_id, _ in world.connector.calls]
    assert started == [first.id, second.id, third.id, fourth.id]


async def test_skip_jobs_not_yet_eligible_due_to_retry_after(world: World) -> None:
    """Job Claiming And Concurrency / Skip jobs not yet eligible due to retry_after"""
    connection = await world.connection()
    job_id = await world.job(connection, attempts=1, retry_after=at("12:10"))

    ran_before = await world.run_due("12:09:59")
    waiting = await world.get_job(job_id)
    world.script(SyncResult())
    ran_then = await world.run_due("12:10")

    assert (ran_before, waiting.status) == (0, "queued")
    assert (ran_then, (await world.get_job(job_id)).status) == (1, "succeeded")


async def test_single_flight_per_connection(world: World) -> None:
    """Job Claiming And Concurrency / Single-flight per connection"""
    connection = await world.connection()
    await world.job(connection, priority=1)
    second = await world.job(connection, job_type="full")

    async with world.during_run():
        ran_meanwhile = await world.run_due()
        waiting = await world.get_job(second)
    world.script(SyncResult())
    ran_afterwards = await world.run_due()

    assert (ran_meanwhile, waiting.status) == (0, "queued")
    assert (ran_afterwards, (await world.get_job(second)).status) == (1, "succeeded")


@pytest.mark.engine(executor={"single_flight": "job_type"})
async def test_single_flight_by_job_type_lets_types_run_side_by_side(world: World) -> None:
    """Job Claiming And Concurrency / Single flight by job type lets types run side by side"""
    connection = await world.connection()
    incremental = await world.job(connection, priority=1)
    full = await world.job(connection, job_type="full")

    async with world.during_run(), world.during_run():
        running = [await world.get_job(incremental), await world.get_job(full)]

    assert [job.status for job in running] == ["running", "running"]


async def test_unknown_provider_stays_queued(world: World) -> None:
    """Job Claiming And Concurrency / Unknown provider stays queued"""
    known, unknown = await world.connection(), await world.connection(provider="gitlab")
    await world.job(known)
    job_id = await world.job(unknown, priority=10)

    world.script(SyncResult())
    ran = await world.run_due()

    job = await world.get_job(job_id)
    assert (ran, job.status, job.attempts) == (1, "queued", 0)
    knowing = [ScriptedConnector("gitlab", [SyncResult()])]
    async with world.another_engine(knowing) as other:
        assert await other.run_due() == 1
