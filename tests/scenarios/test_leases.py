"""A dead worker's job runs again, and a worker that only seemed dead can do no harm."""

from support.world import World, at
from syncline import Signal, SyncResult

LEASED = "SELECT FROM {schema}.sync_jobs WHERE lease_token IS NOT NULL"


async def test_lapsed_lease_is_reaped(world: World) -> None:
    """Lease And Fencing / Lapsed lease is reaped"""
    connection = await world.connection()
    job_id = await world.running_job(connection, attempts=1)
    world.clock.advance(seconds=30)

    async with world.another_engine(connectors=()) as reaper:
        await reaper.run_due()

    job = await world.get_job(job_id)
    assert (job.status, job.attempts, job.retry_after) == ("queued", 2, None)
    assert job.error["class"] == "LeaseLapsed"
    assert await world.sql(LEASED) == []
    world.script(SyncResult())
    assert await world.run_due() == 1
    assert (await world.get_job(job_id)).status == "succeeded"


async def test_fenced_worker_changes_nothing(world: World) -> None:
    """Lease And Fencing / Fenced worker changes nothing"""
    connection = await world.connection(sync={"cursor": "old"})
    job_id = await world.job(connection)
    stale = SyncResult([Signal("stale", at("11:00"), {})], next_cursor="stale", has_more=True)

    async with world.during_run(stale) as run_of_a:
        world.clock.advance(seconds=31)
        async with world.during_run(SyncResult(next_cursor="fresh")):
            before = await world.get_job(job_id)
            await run_of_a.finish()

            assert await world.get_job(job_id) == before
            assert await world.signals(connection) == []
            assert (await world.sync_metadata(connection))["cursor"] == "old"
            assert (await world.pending(connection)).status == "running"

    assert (await world.get_job(job_id)).status == "succeeded"
    assert (await world.sync_metadata(connection))["cursor"] == "fresh"
