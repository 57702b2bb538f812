"""More data means another job, at once, from where this page ended."""

from support.world import World, at
from syncline import Signal, SyncResult

NEWS = Signal("opened", at("11:00"), {"number": 1})


async def test_follow_up_job_enqueued_on_has_more(world: World) -> None:
    """Pagination Continuation / Follow-up job enqueued on has_more"""
    connection = await world.connection()
    parent = await world.job(connection)

    await world.run_one(SyncResult(next_cursor={"page": 2}, has_more=True))

    follow_up = await world.pending(connection)
    assert (await world.get_job(parent)).status == "succeeded"
    assert (follow_up.job_type, follow_up.status) == ("incremental", "queued")
    assert (follow_up.scheduled_at, follow_up.cursor) == (at("12:00"), {"page": 2})


async def test_follow_up_merges_into_a_queued_job(world: World) -> None:
    """Pagination Continuation / Follow-up merges into a queued job"""
    connection = await world.connection(sync={"cursor": "old"})
    full = await world.job(connection, job_type="full", priority=5)
    waiting = await world.job(
        connection, scheduled_at=at("12:30"), attempts=3, retry_after=at("12:40")
    )

    await world.run_one(SyncResult([NEWS], next_cursor="new", has_more=True))

    assert (await world.get_job(full)).status == "succeeded"
    assert len(await world.signals(connection)) == 1
    assert (await world.sync_metadata(connection))["cursor"] == "new"
    merged = await world.pending(connection)
    assert merged.id == waiting
    assert (merged.cursor, merged.scheduled_at, merged.priority) == ("new", at("12:00"), 5)
    assert (merged.attempts, merged.retry_after) == (3, at("12:40"))


async def test_has_more_without_cursor_is_a_contract_error(world: World) -> None:
    """Pagination Continuation / has_more without cursor is a contract error"""
    connection = await world.connection(sync={"cursor": "here"})
    job_id = await world.job(connection)

    await world.run_one(SyncResult([NEWS], has_more=True))

    job = await world.get_job(job_id)
    assert (job.status, job.attempts) == ("queued", 1)
    assert job.retry_after is not None
    assert job.retry_after > at("12:00")
    assert job.error["class"] == "ContractError"
    assert "has_more needs a next_cursor" in job.error["message"]
    assert await world.signals(connection) == []
    assert (await world.sync_metadata(connection))["cursor"] == "here"
    assert (await world.engine.connections.get(connection.id)).status == "active"
