"""An interval that follows what the runs of a connection bring."""

import pytest

from support.world import World, at
from syncline import Connection, Permanent, Signal, SyncResult

BOUNDS = {"min_seconds": 300, "max_seconds": 1200}
SIGNAL = Signal(kind="seen", occurred_at=at("12:00"), payload={})


async def test_empty_runs_double_the_interval_up_to_the_longest(world: World) -> None:
    """Adaptive Cadence / Empty runs double the interval up to the longest"""
    bounds = BOUNDS | {"max_seconds": 1000}
    connection = await world.connection(last_finished="12:00", sync={"adaptive": bounds})

    slots = ("12:05", "12:15", "12:31:40", "12:48:20")
    planned = [await plan_and_run(world, connection, slot) for slot in slots]

    assert planned == [300, 600, 1000, 1000]


async def test_a_run_that_brings_something_begins_at_the_shortest_again(world: World) -> None:
    """Adaptive Cadence / A run that brings something begins at the shortest again"""
    connection = await world.connection(last_finished="12:00", sync={"adaptive": BOUNDS})
    await plan_and_run(world, connection, "12:05")
    await plan_and_run(world, connection, "12:15", SyncResult(signals=[SIGNAL]))

    assert await plan_and_run(world, connection, "12:20") == 300


async def test_a_trigger_begins_at_the_shortest_again(world: World) -> None:
    """Adaptive Cadence / A trigger begins at the shortest again"""
    connection = await world.connection(last_finished="12:00", sync={"adaptive": BOUNDS})
    await plan_and_run(world, connection, "12:05")
    await world.tick("12:06")
    world.clock.set(at("12:07"))
    await world.engine.trigger(connection.id)
    await world.run_one()

    assert await plan_and_run(world, connection, "12:12") == 300


async def test_a_run_that_failed_leaves_the_interval_as_it_is(world: World) -> None:
    """Adaptive Cadence / A run that failed leaves the interval as it is"""
    connection = await world.connection(last_finished="12:00", sync={"adaptive": BOUNDS})
    await plan_and_run(world, connection, "12:05")
    await plan_and_run(world, connection, "12:15", Permanent("gone"))
    await world.engine.connections.resume(connection.id)

    assert await plan_and_run(world, connection, "12:25") == 600


async def test_bad_bounds_count_as_absent(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Adaptive Cadence / Bad bounds count as absent"""
    bad = {"min_seconds": 600, "max_seconds": 300}
    connection = await world.connection(last_finished="12:00", sync={"adaptive": bad})

    await world.tick("12:15", jitter_seconds=0)

    assert (await world.pending(connection)).slot_at == at("12:15")
    assert await world.next_run(connection) == at("12:30")
    assert "effective_interval_seconds" not in await world.sync_metadata(connection)
    [warning] = [one for one in caplog.records if "sync.adaptive" in one.getMessage()]
    assert str(connection.id) in warning.getMessage()


async def test_the_last_job_may_be_pruned(world: World) -> None:
    """An empty job is kept for hours only; without it the interval still doubles."""
    connection = await world.connection(last_finished="12:00", sync={"adaptive": BOUNDS})
    await plan_and_run(world, connection, "12:05")
    await world.sql("UPDATE {schema}.connections SET last_finished_at = $1", at("12:05"))
    await world.sql("DELETE FROM {schema}.sync_jobs")  # both as the pruner does

    assert await plan_and_run(world, connection, "12:15") == 600


async def plan_and_run(
    world: World,
    connection: Connection,
    slot: str,
    ending: SyncResult | BaseException | None = None,
) -> int:
    """Check that the next slot is this one, run its job, and return the interval of the plan."""
    too_early = await world.tick(at(slot).replace(second=0, minute=at(slot).minute - 2))
    await world.tick(slot, jitter_seconds=0)
    assert too_early.scheduled == 0
    assert (await world.pending(connection)).slot_at == at(slot)
    await world.run_one(SyncResult() if ending is None else ending)
    effective: int = (await world.sync_metadata(connection))["effective_interval_seconds"]
    return effective
