"""E10 of the specification: sync now, retry, cancel."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from support.fakes import HeldRun, eventually
from support.world import World, at
from syncline import RateLimited, SyncResult, Transient
from syncline.engine.wakeup import Wakeup
from syncline.store.pool import Pool

UNKNOWN = uuid4()


async def test_trigger_queues_a_job_for_now(world: World) -> None:
    """E10: incremental, for now, with priority 10."""
    connection = await world.connection(last_finished="11:59")

    job = await world.engine.trigger(connection.id)

    assert await world.pending(connection) == job
    assert (job.job_type, job.status, job.cursor) == ("incremental", "queued", None)
    assert (job.scheduled_at, job.priority, job.attempts) == (at("12:00"), 10, 0)


async def test_trigger_takes_type_and_priority(world: World) -> None:
    """E10: type and priority where given."""
    connection = await world.connection()

    for job_type in ("full", "webhook"):
        job = await world.engine.trigger(connection.id, job_type=job_type, priority=-3)

        assert (job.job_type, job.priority) == (job_type, -3)


async def test_trigger_refuses_what_it_does_not_know(world: World) -> None:
    connection = await world.connection()
    wrong: list[dict[str, Any]] = [
        {"job_type": "partial"},
        {"priority": 40_000},
        {"priority": "high"},
    ]

    for options in wrong:
        with pytest.raises(ValueError, match=next(iter(options))):
            await world.engine.trigger(connection.id, **options)


@pytest.mark.parametrize(("queued", "priority"), [(0, 10), (20, 20)])
async def test_trigger_pulls_a_queued_job_forward(world: World, queued: int, priority: int) -> None:
    """E10: `scheduled_at = now`, the higher priority, and no more waiting."""
    connection = await world.connection()
    job_id = await world.job(
        connection,
        priority=queued,
        scheduled_at=at("13:00"),
        retry_after=at("14:00"),
        attempts=3,
        cursor='"own"',
    )

    job = await world.engine.trigger(connection.id)

    assert (job.id, job.priority, job.scheduled_at) == (job_id, priority, at("12:00"))
    assert (job.retry_after, job.attempts, job.cursor) == (None, 3, "own")


@pytest.mark.parametrize(
    ("error", "cleared"),
    [
        (Transient("down"), True),
        (RateLimited("slow down"), True),
        (RateLimited("slow down", retry_after_seconds=3600), False),
    ],
    ids=["backoff", "no hint", "hint"],
)
async def test_trigger_respects_what_a_provider_asked_for(
    world: World, error: Exception, cleared: bool
) -> None:
    """E10: `retry_after` is cleared unless a provider's hint set it."""
    connection = await world.connection()
    await world.job(connection)
    await world.run_one(error)
    waiting = await world.pending(connection)

    job = await world.engine.trigger(connection.id)

    assert waiting.retry_after is not None
    assert job.retry_after == (None if cleared else waiting.retry_after)


async def test_trigger_during_a_run_returns_the_job_that_carries_it_out(world: World) -> None:
    """E10: the running job is marked, with the highest priority asked for."""
    connection = await world.connection()
    running = await world.job(connection)

    async with world.during_run(SyncResult(next_cursor="after")):
        jobs = [await world.engine.trigger(connection.id, priority=p) for p in (5, 30, 1)]

    assert {job.id for job in jobs} == {running}
    one_more = await world.pending(connection)
    assert (one_more.priority, one_more.cursor, one_more.status) == (30, None, "queued")
    await world.run_one()
    assert world.connector.calls[-1] == (connection.id, "after")
    assert len(await world.jobs(connection)) == 2


async def test_trigger_during_a_run_that_has_more(world: World) -> None:
    """E10: the follow-up is the one more; there are not two."""
    connection = await world.connection()
    await world.job(connection)

    async with world.during_run(SyncResult(next_cursor=2, has_more=True)):
        await world.engine.trigger(connection.id)

    follow_up = await world.pending(connection)
    assert (follow_up.cursor, follow_up.priority) == (2, 10)


async def test_trigger_during_a_run_that_fails(world: World) -> None:
    """E10: the job that is queued again is the one more."""
    connection = await world.connection()
    job_id = await world.job(connection)

    async with world.during_run(Transient("down")):
        await world.engine.trigger(connection.id)

    job = await world.pending(connection)
    assert (job.id, job.priority, job.attempts) == (job_id, 10, 1)


async def test_trigger_of_another_type_during_a_run(world: World) -> None:
    """E10: a full run is queued beside a running incremental one."""
    connection = await world.connection()
    await world.job(connection)

    async with world.during_run():
        full = await world.engine.trigger(connection.id, job_type="full")

    assert (await world.pending(connection)).id == full.id


async def test_trigger_of_a_connection_that_is_not_active(world: World) -> None:
    """E10: `ValueError` naming the status."""
    for status in ("paused", "needs_reauth", "error", "revoked"):
        connection = await world.connection(status=status)

        with pytest.raises(ValueError, match=status):
            await world.engine.trigger(connection.id)

        assert await world.jobs(connection) == []


async def test_unknown_and_foreign_ids_are_not_found(world: World) -> None:
    """E10: `LookupError`, also for another tenant's."""
    connection = await world.connection(tenant="acme")
    job_id = await world.job(connection)
    engine = world.engine

    with pytest.raises(LookupError, match=str(UNKNOWN)):
        await engine.trigger(UNKNOWN)
    with pytest.raises(LookupError, match=str(connection.id)):
        await engine.trigger(connection.id, tenant_id="brix")
    for call in (engine.jobs.get, engine.jobs.retry, engine.jobs.cancel):
        with pytest.raises(LookupError, match=str(UNKNOWN)):
            await call(UNKNOWN)
        with pytest.raises(LookupError, match=str(job_id)):
            await call(job_id, tenant_id="brix")

    assert (await engine.trigger(connection.id, tenant_id="acme")).id == job_id
    assert (await engine.jobs.cancel(job_id, tenant_id="acme")).status == "cancelled"


@pytest.mark.parametrize(
    ("portable", "poll_seconds", "by_itself"),
    [(False, 60, False), (True, 0.5, False), (True, 60, True)],
    ids=["listening", "polling", "its own"],
)
async def test_idle_worker_starts_at_once(
    world: World, portable: bool, poll_seconds: float, by_itself: bool
) -> None:
    """E10: by LISTEN/NOTIFY where the connection allows it, by polling where it does not; what a
    worker's own process asks for needs neither."""
    connection = await world.connection()
    first, second = HeldRun(SyncResult()), HeldRun(SyncResult())
    world.script(first, second)
    async with world.another_engine(
        portable=portable, executor={"poll_interval_seconds": poll_seconds}
    ) as worker:
        running = asyncio.create_task(worker.engine.run(handle_signals=False, scheduler=False))
        asking = worker.engine if by_itself else world.engine
        for run in (first, second):
            await asking.trigger(connection.id)
            async with asyncio.timeout(10):
                await run.started.wait()
            run.let_go.set()
            await eventually(lambda: idle(world))

        worker.engine.stop()
        assert await running


async def test_one_hears_what_others_announce(world: World) -> None:
    """A process that woke its own worker itself does not do so again when its word comes back."""
    pool = Pool(world.url, world.schema, size=1)
    await pool.open()
    heard = [asyncio.Event(), asyncio.Event()]
    wakeups = [Wakeup(world.url, pool, event) for event in heard]
    for wakeup, event in zip(wakeups, heard, strict=True):
        await wakeup.step()
        event.clear()
    own = wakeups[0].notification
    try:
        await world.sql(f"SELECT pg_notify('{own.channel}', '{own.sender}')")
        await eventually(heard[1].is_set)
        await wakeups[0].step()  # whatever came for it has come
        assert not heard[0].is_set()

        heard[1].clear()
        await world.sql(f"SELECT pg_notify('{own.channel}', '')")
        await eventually(lambda: heard[0].is_set() and heard[1].is_set())
    finally:
        for wakeup in wakeups:
            wakeup.close()
        await pool.close()


async def idle(world: World) -> bool:
    return not await world.sql("SELECT FROM {schema}.sync_jobs WHERE status = 'running'")
