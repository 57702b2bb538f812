"""S11 of the specification: leaving `active`, coming back, changing pace, being deleted."""

import pytest

from support.http import client_of
from support.world import World, at
from syncline import Connection, Permanent, Signal, SyncResult, Transient, Unauthorized

NEWS = Signal("opened", at("11:00"), {"number": 1})
LEFT = ["paused", "needs_reauth", "error", "revoked"]


async def test_leaving_by_sql_cancels_queued_jobs_at_the_next_tick(world: World) -> None:
    """S11: leaving active, in any way, cancels the connection's queued jobs."""
    connections = [await world.connection(last_finished="12:00") for _ in LEFT]
    await world.tick("12:14")
    for connection, status in zip(connections, LEFT, strict=True):
        await world.job(connection, job_type="full")
        await set_status(world, connection, status)

    await world.tick("12:16")

    for connection in connections:
        jobs = await world.jobs(connection, status="cancelled")
        assert {job.job_type for job in jobs} == {"incremental", "full"}
        assert {job.finished_at for job in jobs} == {at("12:16")}
        assert await world.jobs(connection, status="queued") == []


@pytest.mark.parametrize("touched", ["inserted", "triggered", "resumed"])
async def test_leaving_by_sql_before_any_tick_is_noticed(world: World, touched: str) -> None:
    """S11: also where no tick has looked since the job was queued."""
    connection = await world.connection(last_finished="12:00")
    if touched == "triggered":
        await world.tick("12:10")
        await world.engine.trigger(connection.id)
    elif touched == "resumed":
        await world.engine.connections.pause(connection.id)
        await world.tick("12:10")
        await world.engine.connections.resume(connection.id)
    job_id = await world.job(connection, job_type="full", scheduled_at=at("15:00"))
    await set_status(world, connection, "paused")

    await world.tick("12:11")

    assert (await world.get_job(job_id)).status == "cancelled"
    assert await world.jobs(connection, status="queued") == []


async def test_leaving_by_sql_twice_is_noticed_twice(world: World) -> None:
    """S11: also after it came back by SQL."""
    connection = await world.connection(last_finished="12:00")
    for hour in (13, 14, 15):
        await world.tick(f"{hour}:00")
        assert await world.pending(connection)
        await set_status(world, connection, "paused")
        await world.tick(f"{hour}:01")
        assert await world.jobs(connection, status="queued") == []
        await set_status(world, connection, "active")


async def test_job_claimed_for_a_connection_that_left_is_cancelled_unrun(world: World) -> None:
    """S11: a job claimed for a connection that is not active is cancelled unrun."""
    connections = [await world.connection() for _ in LEFT]
    for connection, status in zip(connections, LEFT, strict=True):
        await world.job(connection)
        await set_status(world, connection, status)

    ran = await world.run_due()

    assert (ran, world.connector.calls) == (0, [])
    for connection in connections:
        [job] = await world.jobs(connection)
        assert (job.status, job.finished_at, job.attempts) == ("cancelled", at("12:00"), 0)


async def test_run_that_ends_after_leaving_keeps_its_page(world: World) -> None:
    """S11: page and cursor are kept, the follow-up becomes cancelled."""
    connection = await world.connection()
    job_id = await world.job(connection)

    async with world.during_run(SyncResult([NEWS], next_cursor="two", has_more=True)):
        await world.engine.connections.pause(connection.id)

    assert (await world.get_job(job_id)).status == "succeeded"
    assert len(await world.signals(connection)) == 1
    assert (await world.sync_metadata(connection))["cursor"] == "two"
    [follow_up] = await world.jobs(connection, status="cancelled")
    assert (follow_up.cursor, follow_up.finished_at) == ("two", at("12:00"))


async def test_retry_after_leaving_becomes_cancelled(world: World) -> None:
    """S11: what would be queued again is cancelled, with its error."""
    connection = await world.connection()
    job_id = await world.job(connection)

    async with world.during_run(Transient("down")):
        await world.engine.connections.pause(connection.id)

    job = await world.get_job(job_id)
    assert (job.status, job.finished_at, job.attempts) == ("cancelled", at("12:00"), 1)
    assert job.error["message"] == "down"


async def test_one_more_run_asked_for_is_cancelled_by_leaving(world: World) -> None:
    """S11: a run asked for during a run is not queued for a connection that left."""
    connection = await world.connection()
    await world.job(connection)

    async with world.during_run():
        await world.engine.trigger(connection.id)
        await world.engine.connections.pause(connection.id)

    assert sorted(job.status for job in await world.jobs(connection)) == ["cancelled", "succeeded"]


@pytest.mark.parametrize("error", [Permanent("gone"), Unauthorized("expired")], ids=repr)
async def test_failure_that_stops_a_connection_cancels_its_other_jobs(
    world: World, error: Exception
) -> None:
    """S11: a connection that leaves because of a failure leaves like any other."""
    connection = await world.connection()
    await world.job(connection, priority=1)
    other = await world.job(connection, job_type="full")

    await world.run_one(error)

    assert (await world.get_job(other)).status == "cancelled"


@pytest.mark.parametrize("by_sql", [True, False])
async def test_returning_connection_is_scheduled_by_its_slots(world: World, by_sql: bool) -> None:
    """S11: resuming keeps the cursor, and the next tick schedules by S3."""
    connection = await world.connection(last_finished="10:00", sync={"cursor": 7})
    await world.tick("10:14")
    await world.engine.connections.pause(connection.id, reason="holidays")
    paused = await world.engine.connections.get(connection.id)
    await world.tick("10:20")

    world.clock.set(at("11:07"))
    if by_sql:
        await set_status(world, connection, "active")
    else:
        await world.engine.connections.resume(connection.id)
    await world.tick(jitter_seconds=0)

    assert (paused.status, paused.status_reason["why"]) == ("paused", "holidays")
    assert (await world.pending(connection)).scheduled_at == at("11:00")
    assert (await world.sync_metadata(connection))["cursor"] == 7


@pytest.mark.parametrize(
    ("error", "status"), [(Unauthorized("expired"), "needs_reauth"), (Permanent("gone"), "error")]
)
async def test_a_pause_keeps_the_trouble_and_its_reason(
    world: World, error: Exception, status: str
) -> None:
    """Resuming restores it; explain and the page name it meanwhile."""
    connection = await world.connection()
    await world.job(connection)
    await world.run_one(error)
    connections = world.engine.connections
    before = await connections.get(connection.id)
    await connections.pause(connection.id, reason="holidays")
    await connections.pause(connection.id, reason="longer holidays")

    explained = await world.engine.explain(connection.id)
    async with client_of(world.engine) as browser:
        pages = [await browser.get(path) for path in ("/connections", f"/connections/{before.id}")]
    resumed = await connections.resume(connection.id)

    assert explained.reason == "paused"
    assert f"Before the pause it was in {status} ({error}" in explained.summary
    assert f"before: {status}" in pages[0].text
    assert f"Before the pause it was in {status}" in pages[1].text
    assert (resumed.status, resumed.status_reason) == (status, before.status_reason)
    assert (await connections.resume(connection.id)).status == "active"


async def test_revoked_connection_cannot_be_resumed(world: World) -> None:
    """A revoked connection stays revoked."""
    connection = await world.connection(status="revoked")

    with pytest.raises(ValueError, match="revoked"):
        await world.engine.connections.resume(connection.id)

    assert (await world.engine.connections.get(connection.id)).status == "revoked"


@pytest.mark.parametrize(
    ("edited", "tick", "scheduled", "next_run"),
    [
        (120, "12:14:10", "12:14:10", "12:16"),
        (870, "12:14:10", "12:14:30", "12:29"),
        (86400, "12:14:10", "12:17", "12:30"),
    ],
    ids=["last + B is past", "last + B is ahead", "longer"],
)
async def test_new_interval_pulls_a_queued_interval_job_forward(
    world: World, edited: int, tick: str, scheduled: str, next_run: str
) -> None:
    """S11, S3: forward to `max(now, last + B)` where that is earlier, never back; what is
    published moves with it."""
    connection = await world.connection(last_finished="12:00")
    await world.tick("12:14", jitter_seconds=120)
    await world.set_metadata(connection, "sync,interval_seconds", edited)

    await world.tick(tick)

    assert (await world.pending(connection)).scheduled_at == at(scheduled)
    assert await world.next_run(connection) == at(next_run)
    assert await world.engine.verify() == []


@pytest.mark.parametrize("has_job", [False, True])
async def test_what_plain_sql_makes_active_loses_the_reason_why_it_was_not(
    world: World, has_job: bool
) -> None:
    """S11: at the next tick, whether there is something to schedule or not."""
    connection = await world.connection()
    await world.job(connection)
    await world.run_one(Permanent("gone"))
    assert (await world.engine.connections.get(connection.id)).status_reason is not None
    await world.sql("UPDATE {schema}.connections SET status = 'active'")
    if has_job:
        await world.job(connection)

    await world.tick("12:30")

    assert (await world.engine.connections.get(connection.id)).status_reason is None


async def test_new_interval_leaves_other_jobs_alone(world: World) -> None:
    """S11: only a job that the scheduler made is pulled forward."""
    connection = await world.connection(last_finished="12:00")
    job_id = await world.job(connection, scheduled_at=at("13:00"))
    await world.set_metadata(connection, "sync,interval_seconds", 60)

    await world.tick("12:14")

    assert (await world.get_job(job_id)).scheduled_at == at("13:00")


@pytest.mark.parametrize("keep_signals", [False, True])
async def test_deleting_removes_jobs_and_signals(world: World, keep_signals: bool) -> None:
    """S11: a connection goes with its jobs, and its signals unless they are to be kept."""
    connection, other = await world.connection(), await world.connection()
    for one in (connection, other):
        await world.job(one)
        await world.run_one(SyncResult([NEWS]))

    await world.engine.connections.delete(connection.id, keep_signals=keep_signals)

    with pytest.raises(LookupError, match=str(connection.id)):
        await world.engine.connections.get(connection.id)
    assert await world.jobs(connection) == []
    assert len(await world.signals(connection)) == (1 if keep_signals else 0)
    assert (len(await world.jobs(other)), len(await world.signals(other))) == (1, 1)


async def test_many_signals_are_deleted_in_batches(world: World) -> None:
    """S11: however many there are."""
    connection = await world.connection()
    await world.sql(
        "INSERT INTO {schema}.signals (tenant_id, provider_slug, connection_id, kind)"
        " SELECT 'acme', 'github', $1, 'k' FROM generate_series(1, 10_001)",
        connection.id,
    )

    await world.engine.connections.delete(connection.id)

    assert await world.sql("SELECT FROM {schema}.signals") == []


async def set_status(world: World, connection: Connection, status: str) -> None:
    await world.sql(
        "UPDATE {schema}.connections SET status = $2 WHERE id = $1", connection.id, status
    )
