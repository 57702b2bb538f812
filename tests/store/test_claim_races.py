"""Claimers against each other: one job of a connection runs at a time, whoever reaches for it."""

from datetime import timedelta
from uuid import UUID

import asyncpg
import pytest

from support.sessions import Actor, actor, claim, due_connection, made_to_wait
from support.world import World
from syncline import Connection, SyncResult
from syncline.store.errors import LostRace

pytestmark = pytest.mark.usefixtures("no_deadlock")


async def test_a_job_goes_to_one_of_two_claimers(world: World) -> None:
    connection = await world.connection()
    job_id = await world.job(connection)
    async with actor(world) as first:
        assert await claimed_by(first, world) == [job_id]

        assert await world.run_due() == 0
        await first.commit()
    assert await world.run_due() == 0
    assert (await world.pending(connection)).status == "running"


async def test_two_types_of_one_connection_are_claimed_by_one_of_two_claimers(
    world: World,
) -> None:
    """The second claim began before the first was committed, and so cannot see it running.

    The single-flight index makes it wait, and refuses it; the engine reads that as "not claimed",
    looks again, and goes on with the others of its batch.
    """
    connection = await two_types(world)
    bystander = await world.connection()
    await world.job(bystander)
    world.script(SyncResult())
    async with actor(world) as first:
        [running] = await claimed_by(first, world, limit=1)
        second = await made_to_wait(world, world.engine.run_due())
        await first.commit()
        assert await second == 1

    assert [job.status for job in await world.jobs(bystander)] == ["succeeded"]
    assert await statuses(world, connection) == {"incremental": "running", "full": "queued"}
    assert (await world.get_job(running)).job_type == "incremental"


async def test_a_claim_that_is_rolled_back_leaves_the_flight_to_the_other(world: World) -> None:
    connection = await two_types(world)
    world.script(SyncResult(), SyncResult())
    async with actor(world) as first:
        await claimed_by(first, world, limit=1)
        second = await made_to_wait(world, world.engine.run_due())
        await first.rollback()
        assert await second == 2

    assert await statuses(world, connection) == {"incremental": "succeeded", "full": "succeeded"}


async def test_the_index_refuses_a_claim_that_looked_before_the_other_committed(
    world: World,
) -> None:
    await two_types(world)
    async with actor(world) as first, actor(world) as second:
        await claimed_by(first, world, limit=1)
        refused = await made_to_wait(world, claimed_by(second, world))
        await first.commit()
        with pytest.raises(LostRace):
            await refused


async def test_without_the_index_the_same_order_would_run_both(world: World) -> None:
    """NOT EXISTS alone is no single-flight: it judges by what was committed when it looked."""
    async with world.another_engine(schema="unguarded") as unguarded:
        await unguarded.engine.migrate()
        try:
            await unguarded.sql("DROP INDEX {schema}.sync_jobs_single_flight")
            connection = await two_types(unguarded)
            async with actor(unguarded) as first, actor(unguarded) as second:
                assert len(await claimed_by(first, unguarded, limit=1)) == 1
                assert len(await claimed_by(second, unguarded)) == 1
                await first.commit()
                await second.commit()
            both_run = {"incremental": "running", "full": "running"}
            assert await statuses(unguarded, connection) == both_run
        finally:
            await unguarded.sql("DROP SCHEMA {schema} CASCADE")


async def test_a_batch_takes_one_type_of_a_connection(world: World) -> None:
    connection, other = await two_types(world), await two_types(world)
    async with actor(world) as claimer:
        claimed = await claim(claimer.tx, world)
        assert [job.connection_id for job in claimed] == [connection.id, other.id]
        await claimer.commit()
    assert await world.run_due() == 0


@pytest.mark.engine(executor={"single_flight": "job_type"})
async def test_types_run_side_by_side_where_that_is_asked_for(world: World) -> None:
    connection = await two_types(world)
    async with actor(world) as first, actor(world) as second:
        assert len(await claimed_by(first, world, limit=1)) == 1
        assert len(await claimed_by(second, world)) == 1
        await first.commit()
        await second.commit()

    assert await statuses(world, connection) == {"incremental": "running", "full": "running"}
    async with actor(world) as third:
        with pytest.raises(asyncpg.UniqueViolationError):
            await third.sql(
                "INSERT INTO {schema}.sync_jobs (tenant_id, provider_slug, connection_id,"
                " job_type, status, flight) VALUES ($1, $2, $3, 'webhook', 'running', 'full')",
                *(connection.tenant_id, connection.provider_slug, connection.id),
            )


async def two_types(world: World) -> Connection:
    """Add a connection with two due jobs of different types."""
    connection = await world.connection()
    await world.job(connection, job_type="incremental", scheduled_at=world.clock())
    await world.job(connection, job_type="full", scheduled_at=world.clock() + timedelta(seconds=1))
    world.clock.advance(seconds=1)
    return connection


async def claimed_by(claimer: Actor, world: World, *, limit: int = 10) -> list[UUID]:
    return [job.id for job in await claim(claimer.tx, world, limit=limit)]


async def statuses(world: World, connection: Connection) -> dict[str, str]:
    return {job.job_type: job.status for job in await world.jobs(connection)}


async def test_a_claim_that_knows_nothing_of_a_pause_starts_nothing_of_its_tenant(
    world: World,
) -> None:
    """A process that was stopped since it last read the pauses claims by the statement alone."""
    await due_connection(world, tenant="acme")
    _, other = await due_connection(world, tenant="birch")
    await world.engine.gates.pause_tenant("acme")

    async with world.engine._pool.transaction() as tx:
        claimed = await claim(tx, world)

    assert [one.id for one in claimed] == [other]
