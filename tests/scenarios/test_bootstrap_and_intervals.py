"""How far apart the runs of a connection are, and when the first one comes."""

from support.world import World, at


async def test_first_incremental_job_scheduled(world: World) -> None:
    """Bootstrap Scheduling / First incremental job scheduled"""
    connection = await world.connection(sync={"first_activated_at": "2025-01-01T12:00:00Z"})

    await world.tick("12:03", jitter_seconds=30)

    job = await world.pending(connection)
    assert job.job_type == "incremental"
    assert job.scheduled_at == at("12:03")
    assert await world.next_run(connection) == at("12:15:30")


async def test_metadata_overrides_default(world: World) -> None:
    """Effective Interval Resolution / Metadata overrides default"""
    connection = await world.connection(last_finished="12:00", sync={"interval_seconds": 300})

    await world.tick("12:05", jitter_seconds=0)

    assert (await world.pending(connection)).scheduled_at == at("12:05")
    assert await world.next_run(connection) == at("12:10")


async def test_default_interval_applied(world: World) -> None:
    """Effective Interval Resolution / Default interval applied"""
    connection = await world.connection(last_finished="12:00")

    early = await world.tick("12:05", jitter_seconds=0)
    await world.tick("12:15")

    assert early.scheduled == 0
    assert (await world.pending(connection)).scheduled_at == at("12:15")
    assert await world.next_run(connection) == at("12:30")


async def test_interval_edit_by_sql_takes_effect_at_the_next_tick(world: World) -> None:
    """Effective Interval Resolution / Interval edit by SQL takes effect at the next tick"""
    connection = await world.connection(last_finished="12:00", sync={"interval_seconds": 3600})
    await world.tick("12:05")
    await world.set_metadata(connection, "sync,interval_seconds", 300)

    await world.tick("12:11", jitter_seconds=0)

    assert (await world.pending(connection)).slot_at == at("12:10")
    assert await world.next_run(connection) == at("12:15")
