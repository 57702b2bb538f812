"""S2, S4 and S6 of the specification: when a connection is due, and what it is counted from."""

import pytest

from support.world import World, at
from syncline import Permanent, SyncResult


async def test_due_within_the_lookahead(world: World) -> None:
    """S2: due when the next slot is at or before `now + lookahead`, which is 60 seconds."""
    await world.connection(last_finished="12:00")
    await world.tick("12:01")

    assert (await world.tick("12:13:59")).scheduled == 0
    assert (await world.tick("12:14")).scheduled == 1


@pytest.mark.engine(scheduler={"tick_interval_seconds": 120})
async def test_lookahead_is_no_shorter_than_a_tick(world: World) -> None:
    """S2: the lookahead is by default the larger of 60 and the tick interval."""
    await world.connection(last_finished="12:00")

    assert (await world.tick("12:12:59")).scheduled == 0
    assert (await world.tick("12:13")).scheduled == 1


@pytest.mark.engine(scheduler={"lookahead_seconds": 0})
async def test_lookahead_can_be_set(world: World) -> None:
    """S2: `lookahead_seconds` says how far ahead runs are queued."""
    await world.connection(last_finished="12:00")

    assert (await world.tick("12:14:59")).scheduled == 0
    assert (await world.tick("12:15")).scheduled == 1


async def test_job_queued_ahead_starts_on_time(world: World) -> None:
    """S2: a job due before the next tick waits in the queue, and starts no earlier."""
    connection = await world.connection(last_finished="12:00")
    await world.tick("12:14", jitter_seconds=0)
    world.script(SyncResult())

    assert await world.run_due("12:14:59") == 0
    assert await world.run_due("12:15") == 1
    assert (await world.jobs(connection))[-1].started_at == at("12:15")


async def test_only_active_connections_are_due(world: World) -> None:
    """S2: a connection that is not active is not due."""
    for status in ("paused", "needs_reauth", "error", "revoked"):
        await world.connection(status=status, last_finished="10:00")
        await world.connection(status=status)

    assert (await world.tick("12:00")).due == 0


async def test_pending_jobs_of_other_types_do_not_matter(world: World) -> None:
    """S2: a connection with a job of another type pending is due all the same."""
    for job_type in ("full", "webhook"):
        connection = await world.connection(last_finished="12:00")
        await world.job(connection, job_type=job_type)

    assert (await world.tick("12:15")).scheduled == 2


async def test_next_run_at_is_published_never_obeyed(world: World) -> None:
    """S2: due is decided by `last` and the interval alone."""
    edits = ["2025-01-01T12:01:00Z", "2025-02-01T00:00:00Z", "soon", None]
    connections = [await world.connection(last_finished="12:00") for _ in edits]
    for connection, edited in zip(connections, edits, strict=True):
        await world.set_metadata(connection, "sync,next_run_at", edited)

    assert (await world.tick("12:05")).scheduled == 0
    await world.tick("12:15", jitter_seconds=0)
    for connection in connections:
        assert (await world.pending(connection)).scheduled_at == at("12:15")


async def test_cancelled_job_is_followed_in_time(world: World) -> None:
    """S2: after a cancel the next slot counts from there, and is not overlooked."""
    connection = await world.connection(last_finished="12:00")
    await world.tick("12:14")
    await world.engine.jobs.cancel((await world.pending(connection)).id)

    await world.tick("12:28")

    assert (await world.pending(connection)).slot_at == at("12:29")


@pytest.mark.parametrize("hurry", ["trigger", "retry", "follow-up", "interval"])
async def test_run_that_ends_before_its_slot_is_followed_in_time(world: World, hurry: str) -> None:
    """S2: what brings a queued run forward brings the next slot forward too."""
    connection = await world.connection(last_finished="12:00")
    await world.tick("12:14", jitter_seconds=59)
    job = await world.pending(connection)
    if hurry == "trigger":
        await world.engine.trigger(connection.id)
    elif hurry == "retry":
        await world.engine.jobs.retry(job.id)
    elif hurry == "follow-up":
        await world.job(connection, job_type="full")
        await world.run_one(SyncResult(next_cursor=1, has_more=True))
    else:
        await world.set_metadata(connection, "sync,interval_seconds", 840)
        await world.tick("12:14")
    await world.run_one()
    assert (await world.get_job(job.id)).finished_at == at("12:14")

    await world.tick("12:28")

    assert (await world.pending(connection)).slot_at in (at("12:29"), at("12:28"))


async def test_last_counts_any_finished_incremental_job(world: World) -> None:
    """S4: however an incremental job finished, the slots count from it."""
    statuses = ["succeeded", "completed", "failed", "cancelled"]
    connections = [await world.connection(last_finished="10:00") for _ in statuses]
    for connection, status in zip(connections, statuses, strict=True):
        await world.job(connection, status=status, finished_at=at("12:00"))

    assert (await world.tick("12:13")).scheduled == 0
    await world.tick("12:15", jitter_seconds=0)
    for connection in connections:
        assert (await world.pending(connection)).scheduled_at == at("12:15")


async def test_last_counts_incremental_jobs_only(world: World) -> None:
    """S4: a finished job of another type leaves the slots where they were."""
    types = ["full", "webhook"]
    connections = [await world.connection(last_finished="11:55") for _ in types]
    for connection, job_type in zip(connections, types, strict=True):
        await world.job(connection, job_type=job_type, status="succeeded", finished_at=at("12:00"))

    await world.tick("12:15", jitter_seconds=0)

    for connection in connections:
        assert (await world.pending(connection)).scheduled_at == at("12:10")


async def test_job_that_failed_for_good_causes_no_bootstrap(world: World) -> None:
    """S4: a connection whose only job failed waits an interval, however often one ticks."""
    connection = await world.connection()
    await world.job(connection)
    await world.run_one(Permanent("gone"))
    await world.engine.connections.resume(connection.id)

    early = [(await world.tick(f"12:0{minute}")).scheduled for minute in range(5)]
    await world.tick("12:15", jitter_seconds=0)

    assert early == [0, 0, 0, 0, 0]
    assert (await world.pending(connection)).scheduled_at == at("12:15")


async def test_job_cancelled_unrun_by_leaving_does_not_count(world: World) -> None:
    """S4: a job that never started, cancelled because its connection left, is no completion."""
    connection = await world.connection(last_finished="10:00")
    await world.tick("10:14")
    await world.engine.connections.pause(connection.id)
    await world.engine.connections.resume(connection.id)

    await world.tick("10:20", jitter_seconds=0)

    assert (await world.pending(connection)).scheduled_at == at("10:15")


async def test_first_run_cancelled_by_leaving_is_made_up_for(world: World) -> None:
    """S4, S5: a connection that left before its first run has that run when it is back."""
    connection = await world.connection()
    await world.tick("12:00")
    await world.engine.connections.pause(connection.id)
    await world.engine.connections.resume(connection.id)

    await world.tick("12:01")

    assert (await world.pending(connection)).scheduled_at == at("12:01")


async def test_job_cancelled_at_its_claim_does_not_count(world: World) -> None:
    """S4: nor is one that was claimed for a connection that had left."""
    connection = await world.connection(last_finished="10:00")
    await world.tick("10:14", jitter_seconds=0)
    await set_status(world, "paused")
    assert await world.run_due("10:15") == 0
    await set_status(world, "active")

    await world.tick("10:20", jitter_seconds=0)

    assert (await world.pending(connection)).scheduled_at == at("10:15")


async def test_retry_cancelled_by_leaving_counts(world: World) -> None:
    """S4: a job that did start counts, whoever cancelled it."""
    connection = await world.connection(last_finished="10:00")
    await world.job(connection, scheduled_at=at("10:15"), started_at=at("10:15"), attempts=1)
    world.clock.set(at("10:20"))
    await world.engine.connections.pause(connection.id)
    await world.engine.connections.resume(connection.id)

    await world.tick("10:40", jitter_seconds=0)

    assert (await world.pending(connection)).scheduled_at == at("10:35")


async def test_last_outlives_pruned_jobs(world: World) -> None:
    """S4: a stored copy of `last` keeps the rhythm when old jobs are pruned."""
    connection = await world.connection(last_finished="12:00")
    await world.tick("12:15", jitter_seconds=0)
    await world.sql("DELETE FROM {schema}.sync_jobs WHERE finished_at IS NOT NULL")
    await world.sql("DELETE FROM {schema}.sync_jobs")

    await world.tick("12:31", jitter_seconds=0)

    assert (await world.pending(connection)).scheduled_at == at("12:30")


@pytest.mark.engine(scheduler={"default_interval_seconds": 600})
async def test_default_interval_is_a_setting(world: World) -> None:
    """S6: a connection without an interval of its own has `default_interval_seconds`."""
    connection = await world.connection(last_finished="12:00")

    await world.tick("12:10", jitter_seconds=0)

    assert (await world.pending(connection)).scheduled_at == at("12:10")
    assert await world.next_run(connection) == at("12:20")


async def set_status(world: World, status: str) -> None:
    await world.sql("UPDATE {schema}.connections SET status = $1", status)
