"""E7 of the specification: how long a run may take, and what a thread may hold up."""

import asyncio
import threading
from typing import Any

import pytest

from support.fakes import eventually
from support.world import World, at, in_short
from syncline import Connection, Connector, Signal, SyncResult
from syncline.store.pool import Pool, SessionOptions

GOOD = Signal("opened", at("11:00"), {"number": 1}, dedupe_key="1")


@pytest.mark.engine(executor=in_short(max_run_seconds=0.1))
async def test_run_that_takes_too_long_ends_as_a_failure(world: World) -> None:
    """E7: `max_run_seconds` ends a run, in real seconds, and stops its connector."""
    connection = await world.connection()
    await world.job(connection)

    async with world.during_run(SyncResult([GOOD])) as run:
        assert run.worker is not None
        await run.worker

    job = await world.pending(connection)
    assert run.was_stopped
    assert (job.status, job.attempts, job.error["class"]) == ("queued", 1, "Timeout")
    assert "max_run_seconds" in job.error["message"]
    assert await world.signals(connection) == []


class Blocking(Connector):
    """Sits in a thread until it is let go."""

    provider = "github"

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.entered = 0
        self.left = 0

    def sync(self, connection: Connection, cursor: Any) -> SyncResult:
        self.entered += 1
        self.let_go.wait(30)
        self.left += 1
        return SyncResult([GOOD], next_cursor=self.left)


async def test_blocking_connector_runs_in_a_thread(world: World) -> None:
    """E7: it stalls neither the loop nor the renewal of its lease."""
    connector = Blocking()
    connection = await world.connection()
    job_id = await world.job(connection)
    async with world.another_engine([connector], executor={"lease_seconds": 1.2}) as worker:
        running = asyncio.create_task(worker.run_due())
        await eventually(lambda: connector.entered == 1)
        world.clock.advance(2)
        expires = "SELECT lease_expires_at AS at FROM {schema}.sync_jobs"

        async def renewed() -> bool:
            return bool(
                (await world.sql(expires))[0]["at"]
                == world.clock() + worker.settings.executor.lease
            )

        await eventually(renewed)
        connector.let_go.set()
        assert await running == 1

    assert (await world.get_job(job_id)).status == "succeeded"
    assert len(await world.signals(connection)) == 1


async def test_thread_that_hangs_keeps_its_slot(world: World) -> None:
    """E7: after a timeout until it returns; its result is discarded."""
    connector = Blocking()
    first, second = await world.connection(), await world.connection()
    first_job, second_job = await world.job(first, priority=1), await world.job(second)
    limits = {"concurrency": 1, "max_run_seconds": 0.1}
    async with world.another_engine([connector], executor=limits) as worker:
        assert await worker.run_due() == 1
        assert (await world.get_job(first_job)).error["class"] == "Timeout"
        assert (await world.get_job(second_job)).status == "queued"
        assert await worker.run_due() == 0

        connector.let_go.set()
        await eventually(lambda: connector.left == 1)
        await eventually(lambda: has_run_one(worker))  # the slot is free a moment later

    assert await world.signals(first) == []
    assert (await world.get_job(second_job)).status == "succeeded"


async def has_run_one(worker: World) -> bool:
    return await worker.run_due() == 1


async def test_no_transaction_is_open_during_a_call(world: World) -> None:
    """E7: while a connector is called, no session of the engine has begun anything."""
    await world.job(await world.connection())

    async def nothing_is_open() -> bool:
        return not await world.sql(
            "SELECT FROM pg_stat_activity WHERE application_name LIKE 'syncline%'"
            " AND datname = current_database() AND state <> 'idle'"
        )

    async with world.during_run(), asyncio.timeout(5):
        await eventually(nothing_is_open)  # a renewal in progress ends soon


@pytest.mark.parametrize("pgbouncer", [False, True], ids=["own session", "behind a pooler"])
async def test_no_session_idles_in_a_transaction(world: World, pgbouncer: bool) -> None:
    """E7: every session has a timeout for it; behind a pooler every transaction does."""
    pool = Pool(world.url, world.schema, size=1, options=SessionOptions(pgbouncer))
    await pool.open()
    try:
        async with pool.transaction() as tx:
            shown = await tx.fetchval("SHOW idle_in_transaction_session_timeout")
    finally:
        await pool.close()

    assert shown == "10s"


async def test_connection_deleted_in_mid_run_is_gone(world: World) -> None:
    """E7: the run settles nothing."""
    connection = await world.connection()
    await world.job(connection)

    async with world.during_run(SyncResult([GOOD], next_cursor=1, has_more=True)):
        await world.engine.connections.delete(connection.id)

    assert await world.sql("SELECT FROM {schema}.signals") == []
    assert await world.sql("SELECT FROM {schema}.sync_jobs") == []
