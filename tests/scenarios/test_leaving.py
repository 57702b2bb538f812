"""A connection that is not active does no work and loses nothing."""

from support.world import World, at


async def test_pausing_cancels_queued_jobs(world: World) -> None:
    """Leaving And Returning / Pausing cancels queued jobs"""
    connection = await world.connection(last_finished="10:00")
    queued = [await world.job(connection), await world.job(connection, job_type="full")]
    world.clock.set(at("10:20"))

    await world.engine.connections.pause(connection.id)

    jobs = [await world.get_job(job_id) for job_id in queued]
    assert [(job.status, job.finished_at) for job in jobs] == [("cancelled", at("10:20"))] * 2
    assert (await world.tick("10:50")).scheduled == 0
    await world.engine.connections.resume(connection.id)
    await world.tick("10:50")
    assert (await world.pending(connection)).slot_at == at("10:45")


async def test_resume_keeps_the_cursor(world: World) -> None:
    """Leaving And Returning / Resume keeps the cursor"""
    connection = await world.connection(
        status="paused",
        last_finished="10:00",
        sync={"interval_seconds": 900, "cursor": {"page": 7}},
    )
    await world.tick("10:40")

    world.clock.set(at("10:50"))
    await world.engine.connections.resume(connection.id)
    await world.tick(jitter_seconds=0)

    assert (await world.pending(connection)).scheduled_at == at("10:45")
    await world.run_one()
    assert world.connector.calls == [(connection.id, {"page": 7})]
