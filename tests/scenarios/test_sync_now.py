"""Every accepted request is followed by a run that begins after it."""

from support.world import World, at
from syncline import SyncResult


async def test_trigger_during_a_run_queues_exactly_one_more(world: World) -> None:
    """Sync Now / Trigger during a run queues exactly one more"""
    connection = await world.connection()
    running = await world.job(connection)

    async with world.during_run() as run:
        await world.engine.trigger(connection.id)
        await world.engine.trigger(connection.id)
        meanwhile = await world.pending(connection)
        world.clock.set(at("12:00:20"))

    assert (meanwhile.id, meanwhile.status) == (running, "running")
    assert not run.was_stopped
    assert (await world.get_job(running)).status == "succeeded"
    one_more = await world.pending(connection)
    assert (one_more.job_type, one_more.status) == ("incremental", "queued")
    assert (one_more.scheduled_at, one_more.priority) == (at("12:00:20"), 10)


async def test_a_cancelled_run_may_still_go_on(world: World) -> None:
    """Sync Now / A cancelled run may still go on"""
    connection = await world.connection(last_finished="11:00")
    running = await world.job(connection)

    async with world.during_run():
        await world.engine.jobs.cancel(running)
        next_job = await world.engine.trigger(connection.id)
        claimed_meanwhile = await world.run_due()
        told = await world.engine.explain(connection.id)

    assert claimed_meanwhile == 0
    assert (told.reason, told.waits_until) == ("stopping", at("12:00:30"))
    world.script(SyncResult())
    assert await world.run_due() == 1
    assert (await world.get_job(next_job.id)).status == "succeeded"
