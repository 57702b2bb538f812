"""E10 of the specification: finished rows never change; retrying and cancelling go round them."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from support.fakes import HeldRun, eventually
from support.world import World, at, in_short
from syncline import Connection, Permanent, RateLimited, Signal, SyncResult, Transient

ENDED = ["succeeded", "completed", "failed", "cancelled"]
CANCEL_BY_HAND = "UPDATE {schema}.sync_jobs SET status = 'cancelled', finished_at = now()"
CLEAR_LEASE = ", lease_token = NULL, lease_expires_at = NULL"
SOMETHING = SyncResult([Signal("seen", at("11:00"), {})], next_cursor="new")


@pytest.mark.parametrize(
    "error", [Transient("down"), RateLimited("slow", retry_after_seconds=3600)], ids=repr
)
async def test_retry_makes_a_job_in_backoff_due_now(world: World, error: Exception) -> None:
    """E10: retrying makes a job in backoff due now."""
    connection = await world.connection()
    job_id = await world.job(connection)
    await world.run_one(error)
    assert await world.run_due() == 0

    job = await world.engine.jobs.retry(job_id)

    assert (job.id, job.status, job.retry_after, job.attempts) == (job_id, "queued", None, 1)
    world.script(SyncResult())
    assert await world.run_due() == 1


@pytest.mark.parametrize("job_type", ["incremental", "full"])
async def test_retry_of_a_failed_job_triggers_a_new_one(world: World, job_type: str) -> None:
    """E10: with the failed one's type and cursor; the failed row does not change."""
    connection = await world.connection(sync={"cursor": "stored"})
    job_id = await world.job(connection, job_type=job_type, cursor='{"page": 3}')
    await world.run_one(Permanent("gone"))
    await world.engine.connections.resume(connection.id)
    failed = await world.get_job(job_id)

    job = await world.engine.jobs.retry(job_id)

    assert await world.get_job(job_id) == failed
    assert job.id != job_id
    assert (job.job_type, job.cursor, job.status) == (job_type, {"page": 3}, "queued")
    assert (job.scheduled_at, job.attempts) == (at("12:00"), 0)
    await world.run_one()
    assert world.connector.calls[-1] == (connection.id, {"page": 3})


async def test_retry_needs_an_active_connection(world: World) -> None:
    """E10: a failed job of a connection that is stopped is retried after it was resumed."""
    connection = await world.connection()
    job_id = await world.job(connection)
    await world.run_one(Permanent("gone"))

    with pytest.raises(ValueError, match="error"):
        await world.engine.jobs.retry(job_id)


async def test_retry_of_a_job_that_needs_none(world: World) -> None:
    """E10: there is nothing to retry about a job that runs, or has succeeded."""
    connection = await world.connection()
    job_id = await world.job(connection)

    async with world.during_run():
        with pytest.raises(ValueError, match="running"):
            await world.engine.jobs.retry(job_id)
    with pytest.raises(ValueError, match="succeeded"):
        await world.engine.jobs.retry(job_id)


async def test_cancel_ends_a_queued_job(world: World) -> None:
    """E10: it counts as a completion, since nothing but a person ended it."""
    connection = await world.connection(last_finished="10:00")
    job_id = await world.job(connection)

    job = await world.engine.jobs.cancel(job_id)

    assert (job.id, job.status, job.finished_at) == (job_id, "cancelled", at("12:00"))
    await world.tick("12:15", jitter_seconds=0)
    assert (await world.pending(connection)).scheduled_at == at("12:15")


async def test_cancel_clears_the_lease_of_a_running_job(world: World) -> None:
    """E10: what its worker still does changes nothing."""
    connection = await world.connection()
    job_id = await world.job(connection)

    async with world.during_run():
        job = await world.engine.jobs.cancel(job_id)
        [row] = await world.sql(
            "SELECT lease_token, lease_expires_at FROM {schema}.sync_jobs WHERE id = $1", job_id
        )

    assert (job.status, row["lease_token"], row["lease_expires_at"]) == ("cancelled", None, None)
    assert await world.get_job(job_id) == job


async def test_the_next_job_waits_until_a_cancelled_run_has_stopped(world: World) -> None:
    """E10: not claimed before the worker confirms that its connector has stopped."""
    connection = await world.connection(last_finished="11:00")
    job_id = await world.job(connection)

    async with world.during_run(SyncResult(next_cursor="old")):
        await world.engine.jobs.cancel(job_id)
        await world.engine.trigger(connection.id)
        assert await world.run_due() == 0

    world.script(SyncResult(next_cursor="new"))
    assert await world.run_due() == 1
    assert (await world.sync_metadata(connection))["cursor"] == "new"


async def test_the_next_job_waits_until_a_run_that_plain_sql_cancelled_has_stopped(
    world: World,
) -> None:
    """E10: the lease that the row keeps says so; once it has stopped, that is cleared."""
    connection = await world.connection(last_finished="11:00")
    job_id = await world.job(connection)

    async with world.during_run(SyncResult(next_cursor="old")):
        await world.sql(CANCEL_BY_HAND + " WHERE id = $1", job_id)
        await world.engine.trigger(connection.id)
        assert await world.run_due() == 0

    world.script(SyncResult(next_cursor="new"))
    assert await world.run_due() == 1
    assert await world.engine.verify() == []


@pytest.mark.parametrize("lapses", [0, 2], ids=["a job", "a poison job"])
async def test_the_next_job_waits_for_a_dead_worker_as_long_as_its_lease(
    world: World, lapses: int
) -> None:
    """E10: or before that lease would have ended."""
    connection = await world.connection()
    job_id = await world.running_job(connection)
    await world.engine.jobs.cancel(job_id)
    await world.engine.trigger(connection.id)
    await world.sql("UPDATE {schema}.sync_jobs SET lapses = $1 WHERE status = 'queued'", lapses)
    world.script(SyncResult())

    assert await world.run_due("12:00:29") == 0
    assert await world.run_due("12:00:30") == 1


async def test_a_worker_that_lost_a_job_long_ago_confirms_nothing_for_its_successor(
    world: World,
) -> None:
    """E10: what is confirmed is a run, told by its token, and not the job."""
    connection = await world.connection()
    job_id = await world.job(connection)

    async with world.during_run() as run_of_a:
        world.clock.advance(seconds=31)
        async with world.during_run():
            await world.engine.jobs.cancel(job_id)
            await run_of_a.finish()
            await world.engine.trigger(connection.id)

            assert await world.run_due() == 0


@pytest.mark.engine(executor=in_short(lease_seconds=1.2))
async def test_a_running_worker_stops_and_starts_the_next_job_in_turn(world: World) -> None:
    """E10: at its next renewal it stops, says so, and goes on; no two calls overlap."""
    connection = await world.connection()
    job_id = await world.job(connection)
    run = HeldRun(SyncResult())
    stopped_before = []

    async def follow(_: Connection, __: Any) -> SyncResult:
        stopped_before.append(run.was_stopped)
        return SyncResult()

    world.script(run, follow)
    working = asyncio.create_task(world.engine.run(handle_signals=False, scheduler=False))
    await run.started.wait()
    await world.engine.jobs.cancel(job_id)
    await world.engine.trigger(connection.id)
    await eventually(lambda: bool(stopped_before))
    world.engine.stop()
    await working

    assert stopped_before == [True]


@pytest.mark.parametrize("lease", ["", CLEAR_LEASE], ids=["lease left", "lease cleared"])
@pytest.mark.parametrize(
    ("ending", "has_run"),
    [(SyncResult(), True), (SOMETHING, False), (Transient("down"), True)],
    ids=["nothing", "a page of a first run", "an error"],
)
async def test_a_running_job_that_plain_sql_cancelled_stays_cancelled(
    world: World, ending: SyncResult | Exception, has_run: bool, lease: str
) -> None:
    """E10: a finished row never changes, whoever finished it; nothing closes in its own way."""
    connection = await world.connection(last_finished="11:00" if has_run else None)
    await world.tick(jitter_seconds=0)
    job_id = (await world.pending(connection)).id

    async with world.during_run(ending):
        await world.sql(CANCEL_BY_HAND + lease + " WHERE id = $1", job_id)
        before = await world.get_job(job_id)

    assert await world.get_job(job_id) == before
    assert await world.signals(connection) == []
    assert "cursor" not in await world.sync_metadata(connection)


async def test_a_stream_that_plain_sql_cancelled_stores_no_further_page(world: World) -> None:
    """E10: a page commits on a job that still runs, and not on one that keeps its token alone."""
    connection = await world.connection()
    job_id = await world.job(connection)

    async def stream(_: Connection, __: Any) -> AsyncIterator[SyncResult]:
        yield SyncResult([Signal("seen", at("11:00"), {})], next_cursor=1)
        await world.sql(CANCEL_BY_HAND + " WHERE id = $1", job_id)
        yield SyncResult([Signal("seen", at("11:00"), {})], next_cursor=2)

    world.script(stream)
    await world.run_due()

    assert (await world.get_job(job_id)).status == "cancelled"
    assert len(await world.signals(connection)) == 1
    assert (await world.sync_metadata(connection))["cursor"] == 1


@pytest.mark.engine(executor=in_short(lease_seconds=1.2))
async def test_a_worker_stops_what_plain_sql_cancelled_at_its_next_renewal(world: World) -> None:
    """E10: though the row keeps its lease."""
    connection = await world.connection()
    await world.job(connection)

    async with world.during_run() as run:
        await world.sql(CANCEL_BY_HAND)
        await eventually(lambda: run.was_stopped)


async def test_finished_rows_never_change(world: World) -> None:
    """E10: neither a cancel nor a retry nor a trigger touches them."""
    for status in ENDED:
        connection = await world.connection()
        job_id = await world.job(connection, status=status, finished_at=at("11:00"))
        before = await world.get_job(job_id)

        with pytest.raises(ValueError, match=status):
            await world.engine.jobs.cancel(job_id)
        await world.engine.trigger(connection.id)
        if status in ("failed", "cancelled"):
            assert (await world.engine.jobs.retry(job_id)).id != job_id

        assert await world.get_job(job_id) == before
