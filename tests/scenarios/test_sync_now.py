"""Every accepted request is followed by a run that begins after it."""

from support.world import World, at


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
