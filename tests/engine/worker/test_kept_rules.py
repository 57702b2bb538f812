"""What outlives a job, and what a change that changes nothing leaves alone."""

from support.world import World, at


async def test_last_outlives_the_only_job_that_ever_ran(world: World) -> None:
    """S4: the stored copy keeps it, also where no tick has read it since."""
    connection = await world.connection()
    await world.tick("12:00")
    await world.run_one()
    await world.sql("DELETE FROM {schema}.sync_jobs")

    await world.tick("12:16", jitter_seconds=0)

    assert (await world.pending(connection)).scheduled_at == at("12:15")


async def test_an_interval_written_anew_with_the_same_value_pulls_nothing(world: World) -> None:
    """S11: only a new interval pulls a queued job forward."""
    connection = await world.connection(last_finished="11:45")
    await world.tick("12:00", jitter_seconds=100)

    await world.set_metadata(connection, "sync,interval_seconds", 900)
    await world.tick("12:00:10")

    assert (await world.pending(connection)).scheduled_at == at("12:01:40")
