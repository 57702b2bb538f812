"""Leases: the worker that holds one, the reaper that takes it over, and who comes first."""

import pytest

from support.sessions import (
    actor,
    claim,
    due_connection,
    ended_into_waiting,
    take_over,
)
from support.world import World, at
from syncline import Signal, SyncResult
from syncline.store.data import connections
from syncline.store.queue import claims

pytestmark = pytest.mark.usefixtures("no_deadlock")

PAGE = SyncResult([Signal("seen", at("11:00"), {"n": 1})], next_cursor={"page": 2})


async def test_a_late_settle_after_the_reaper_changes_no_row(world: World) -> None:
    """The lease lapsed and was reaped while the worker ran: what it brings is not wanted."""
    connection, job_id = await due_connection(world, sync={"cursor": {"page": 1}})
    async with world.during_run(PAGE) as run:
        world.clock.advance(seconds=31)
        async with world.another_engine(connectors=[]) as reaper:
            await reaper.run_due()
        before = await all_rows(world)
        run.let_go.set()

    assert await all_rows(world) == before
    assert (await world.get_job(job_id)).status == "queued"
    assert await world.signals(connection) == []
    assert (await world.sync_metadata(connection))["cursor"] == {"page": 1}


async def test_a_settle_that_waits_for_the_reaper_changes_no_row(world: World) -> None:
    """The reaper has taken the lease over, not committed yet: the settle waits, and is fenced."""
    connection, job_id = await due_connection(world)
    async with world.during_run(PAGE) as run, actor(world) as reaper:
        world.clock.advance(seconds=31)
        await take_over(reaper.tx, world)
        await ended_into_waiting(world, run)
        await reaper.commit()

    assert (await world.get_job(job_id)).status == "running"  # the reaper's own, until it settles
    assert await world.signals(connection) == []
    assert "cursor" not in await world.sync_metadata(connection)


async def test_the_reaper_passes_by_what_is_being_settled(world: World) -> None:
    """An expired lease that nobody reaped may still settle."""
    connection, job_id = await due_connection(world)
    async with world.during_run(PAGE) as run, actor(world) as gate, actor(world) as reaper:
        world.clock.advance(seconds=31)
        await gate.sql("LOCK TABLE {schema}.signals IN ACCESS EXCLUSIVE MODE")
        await ended_into_waiting(world, run)  # connection locked, job closed, not committed
        assert await take_over(reaper.tx, world) == []
        await gate.commit()

    assert (await world.get_job(job_id)).status == "succeeded"
    assert len(await world.signals(connection)) == 1


async def test_a_renewal_waits_for_nobody(world: World) -> None:
    """It holds many jobs: waiting for one that is being settled, it could meet the settle."""
    [settling, running] = [await due_connection(world) for _ in range(2)]
    async with actor(world) as worker:
        leases = [(job.id, job.lease_token) for job in await claim(worker.tx, world)]
        await worker.commit()
    later = at("12:05")
    async with actor(world) as settle, actor(world) as keeper:
        await connections.lock(settle.tx, [settling[0].id])
        await settle.sql("SELECT FROM {schema}.sync_jobs WHERE id = $1 FOR UPDATE", settling[1])

        ours = await claims.renew(keeper.tx, leases, expires_at=later)
        assert ours == {settling[1]: False, running[1]: True}
        await keeper.commit()
        expiries = await world.sql("SELECT id, lease_expires_at FROM {schema}.sync_jobs")
    renewed = {row["id"] for row in expiries if row["lease_expires_at"] == later}
    assert renewed == {running[1]}


async def test_a_renewal_finds_out_what_is_gone(world: World) -> None:
    _, job_id = await due_connection(world)
    async with actor(world) as worker, actor(world) as keeper:
        leases = [(job.id, job.lease_token) for job in await claim(worker.tx, world)]
        await worker.commit()
        await world.engine.jobs.cancel(job_id)
        assert await claims.renew(keeper.tx, leases, expires_at=at("12:05")) == {}


@pytest.mark.parametrize(
    "loss",
    ["status = 'cancelled', finished_at = now()", "lease_token = gen_random_uuid()"],
    ids=["cancelled by plain SQL", "claimed by another"],
)
async def test_a_renewal_extends_nothing_that_is_no_longer_ours(world: World, loss: str) -> None:
    await due_connection(world)
    async with actor(world) as worker, actor(world) as keeper:
        leases = [(job.id, job.lease_token) for job in await claim(worker.tx, world)]
        await worker.commit()
        [before] = await world.sql(
            f"UPDATE {{schema}}.sync_jobs SET {loss} RETURNING lease_expires_at"
        )
        assert await claims.renew(keeper.tx, leases, expires_at=at("12:05")) == {}
        await keeper.commit()
    assert await world.sql("SELECT lease_expires_at FROM {schema}.sync_jobs") == [before]


async def test_an_open_transaction_holds_up_the_reaping_of_its_own_connection(world: World) -> None:
    [held_up, healthy] = [await due_connection(world) for _ in range(2)]
    async with actor(world) as worker, actor(world) as person:
        await claim(worker.tx, world)
        await worker.commit()
        world.clock.advance(seconds=31)
        await person.lock(held_up[0])
        world.script(PAGE, PAGE)
        assert await world.engine.run_due() == 1  # nobody waits for the other
        assert (await world.get_job(healthy[1])).status == "succeeded"
        await person.commit()
    assert await world.engine.run_due() == 1


async def all_rows(world: World) -> list[object]:
    return [
        await world.sql(f"SELECT * FROM {{schema}}.{table} ORDER BY id")
        for table in ("connections", "sync_jobs", "signals")
    ]
