"""What a plan writes into `metadata.sync`, and what bad values there lead to."""

import asyncio

import pytest

from support.world import Logged, World, at

XMIN = """
    SELECT c.xmin = j.xmin AS same
      FROM {schema}.connections c JOIN {schema}.sync_jobs j ON j.connection_id = c.id
     WHERE j.id = $1
"""


async def test_scheduler_metadata_persisted_atomically(world: World) -> None:
    """Connection Entity Schema / Scheduler metadata persisted atomically"""
    connection = await world.connection(last_finished="12:00")

    await world.tick("12:15", jitter_seconds=45)

    job = await world.pending(connection)
    assert await world.next_run(connection) == at("12:30")
    assert (await world.sync_metadata(connection))["last_jitter_seconds"] == 45
    [row] = await world.sql(XMIN, job.id)
    assert row["same"], "job and metadata were written by one transaction"


async def test_rolled_back_plan_leaves_no_trace(world: World) -> None:
    """Connection Entity Schema / Scheduler metadata persisted atomically

    The tick's session dies when its job is inserted and its metadata is not.
    """
    connection = await world.connection(last_finished="12:00")
    metadata = await world.sync_metadata(connection)

    async with world.locked_table("connections"):
        ticking = asyncio.create_task(world.tick("12:15"))
        await world.terminate(await world.blocked_session())

        assert await world.jobs(connection, status="queued") == []
        assert await world.sync_metadata(connection) == metadata
    await asyncio.gather(ticking, return_exceptions=True)


@pytest.mark.engine(scheduler={"max_overridden_interval_seconds": 3600})
async def test_interval_override_exceeds_configuration(world: World, logged: Logged) -> None:
    """Connection Entity Schema / Interval override exceeds configuration"""
    connection = await world.connection(last_finished="12:00", sync={"interval_seconds": 7200})

    await world.tick("12:15")

    assert (await world.sync_metadata(connection))["interval_seconds"] == 900
    [warning] = logged("scheduler.bad_metadata")
    assert warning["levelname"] == "WARNING"
    assert warning["connection_id"] == str(connection.id)
    assert warning["key"] == "sync.interval_seconds"
    assert "from 60 to 3600" in warning["reason"]


@pytest.mark.engine(scheduler={"max_overridden_interval_seconds": 3600})
async def test_invalid_interval_override_rejected(world: World, logged: Logged) -> None:
    """Scheduler Metadata Contract / Invalid interval override rejected"""
    connection = await world.connection(last_finished="12:00", sync={"interval_seconds": 7200})

    await world.tick("12:15", jitter_seconds=0)

    assert (await world.pending(connection)).scheduled_at == at("12:15")
    assert await world.next_run(connection) == at("12:30")
    [plan] = logged("scheduler.job_scheduled")
    assert plan["base_interval_seconds"] == 900
    [warning] = logged("scheduler.bad_metadata")
    assert warning["connection_id"] == str(connection.id)
    assert warning["key"] == "sync.interval_seconds"
    assert warning["reason"].startswith("7200 is not")


async def test_bad_metadata_contained_to_its_connection(world: World, logged: Logged) -> None:
    """Scheduler Metadata Contract / Bad metadata contained to its connection"""
    bad = await world.connection(
        last_finished="12:00",
        sync={"interval_seconds": "often", "cursor": {"page": 7}, "note": "ask Ada"},
    )
    sound = await world.connection(last_finished="12:10", sync={"interval_seconds": 300})

    await world.tick("12:15", jitter_seconds=0)

    assert (await world.pending(bad)).scheduled_at == at("12:15")
    assert (await world.pending(sound)).scheduled_at == at("12:15")
    assert await world.next_run(bad) == at("12:30")
    assert await world.next_run(sound) == at("12:20")
    kept = await world.sync_metadata(bad)
    assert (kept["cursor"], kept["note"]) == ({"page": 7}, "ask Ada")
    [warning] = logged("scheduler.bad_metadata")
    assert (warning["connection_id"], warning["key"]) == (str(bad.id), "sync.interval_seconds")
