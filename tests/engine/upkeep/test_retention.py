"""Retention: what is old goes, what anybody still needs stays, and nobody waits for it."""

import asyncio
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from support.fakes import eventually
from support.world import EMPTY_PAGE, Logged, World, at
from syncline import Connection
from syncline.clock import monotonic, new_id
from syncline.engine.upkeep.maintenance import Maintenance
from syncline.engine.upkeep.retention import NEXT_ROUND_SOON, ROUND_EVERY, Pruner

NOW = at("12:00")
OLD, YOUNG = NOW - timedelta(days=15), NOW - timedelta(days=13)


async def finished(world: World, connection: Connection, when: datetime, **columns: Any) -> UUID:
    return await world.job(connection, **{"status": "succeeded", "finished_at": when, **columns})


async def test_finished_jobs_go_after_fourteen_days(world: World) -> None:
    connection = await world.connection()
    for status in ("succeeded", "completed", "failed", "cancelled"):
        await finished(world, connection, OLD, status=status)
    young = await finished(world, connection, YOUNG)

    report = await world.engine.prune()

    assert (report.jobs, report.signals) == (4, 0)
    assert [job.id for job in await world.jobs(connection)] == [young]


async def test_pending_jobs_stay_however_old(world: World) -> None:
    waiting, working = await world.connection(), await world.connection()
    await world.job(waiting, scheduled_at=OLD, created_at=OLD)
    await world.running_job(working, scheduled_at=OLD, started_at=OLD)

    assert (await world.engine.prune()).jobs == 0


async def test_last_completion_outlives_its_job(world: World) -> None:
    """S4: whoever finished before does not begin again as if it were new."""
    connection = await world.connection(last_finished=OLD, sync={"interval_seconds": 86400})

    assert (await world.engine.prune()).jobs == 1
    await world.tick()

    job = await world.pending(connection)
    assert job.slot_at == OLD + timedelta(days=15)


async def test_last_completion_is_kept_where_somebody_holds_the_connection(world: World) -> None:
    """S4: the job that alone knows of it waits for the next time."""
    connection = await world.connection(last_finished=OLD)
    async with world.session() as session, session.transaction():
        await session.execute(world.qualified("SELECT FROM {schema}.connections FOR NO KEY UPDATE"))
        assert (await world.engine.prune()).jobs == 0

    assert (await world.engine.prune()).jobs == 1
    [row] = await world.sql("SELECT last_finished_at FROM {schema}.connections")
    assert (row["last_finished_at"], await world.jobs(connection)) == (OLD, [])


async def test_job_that_does_not_count_is_not_taken_for_a_completion(world: World) -> None:
    connection = await world.connection()
    await finished(world, connection, OLD, status="cancelled", counts_as_last=False)
    await finished(world, connection, OLD, job_type="full")

    assert (await world.engine.prune()).jobs == 2
    [row] = await world.sql("SELECT last_finished_at FROM {schema}.connections")
    assert row["last_finished_at"] is None


async def test_settled_completion_is_known_without_its_job(world: World) -> None:
    """S4: what ran here needs no copying before it goes."""
    connection = await world.connection(sync={"interval_seconds": 86400})
    world.script(EMPTY_PAGE)
    await world.tick()
    await world.run_due()

    world.clock.advance(seconds=15 * 86400)
    assert (await world.engine.prune()).jobs == 1
    await world.tick()

    assert (await world.pending(connection)).slot_at == NOW + timedelta(days=15)


@pytest.mark.engine(retention={"jobs_days": None})
async def test_jobs_can_be_kept_for_ever(world: World) -> None:
    await finished(world, await world.connection(), NOW - timedelta(days=3650))

    assert (await world.engine.prune()).jobs == 0


async def store_signal(world: World, received_at: datetime, id_: UUID | None = None) -> UUID:
    id_ = id_ or new_id()
    await world.sql(
        "INSERT INTO {schema}.signals (id, tenant_id, provider_slug, connection_id, kind,"
        " received_at) VALUES ($1, 'acme', 'github', $1, 'seen', $2)",
        id_,
        received_at,
    )
    return id_


async def stored_signals(world: World) -> list[UUID]:
    return [row["id"] for row in await world.sql("SELECT id FROM {schema}.signals ORDER BY id")]


async def test_signals_stay_unless_somebody_asked(world: World) -> None:
    await store_signal(world, NOW - timedelta(days=3650))

    assert (await world.engine.prune()).signals == 0


@pytest.mark.engine(retention={"signals_days": 14})
async def test_old_signals_go_where_asked_by_hand_made_ones_too(world: World) -> None:
    """A thousand and more: two batches are full, and a third one follows."""
    await world.sql(
        "INSERT INTO {schema}.signals (id, tenant_id, provider_slug, connection_id, kind,"
        " received_at) SELECT id, 'acme', 'github', id, 'seen', $2 FROM unnest($1::uuid[]) AS id",
        *([new_id() for _ in range(1001)], OLD),
    )
    young = [await store_signal(world, YOUNG) for _ in range(6)]
    by_hand = [UUID(f"{digit}" * 32) for digit in "89abcdef"]
    for number, id_ in enumerate(by_hand):
        await store_signal(world, OLD if number % 2 else YOUNG, id_)

    report = await world.engine.prune()

    assert report.signals == 1005
    assert await stored_signals(world) == [*young, *by_hand[::2]]


async def test_round_goes_in_batches_over_everything(world: World) -> None:
    """More connections than a batch visits, and more jobs of one than a batch removes."""
    await world.sql(
        "INSERT INTO {schema}.connections"
        " (tenant_id, provider_slug, external_id, last_finished_at)"
        " SELECT 'acme', 'github', n::text, $1 FROM generate_series(1, 501) n",
        YOUNG,
    )
    await world.sql(
        "INSERT INTO {schema}.sync_jobs"
        " (tenant_id, provider_slug, connection_id, status, finished_at)"
        " SELECT 'acme', 'github', id, 'succeeded', $1 FROM {schema}.connections,"
        " generate_series(1, CASE external_id WHEN '1' THEN 1001 ELSE 1 END)",
        OLD,
    )

    assert (await world.engine.prune()).jobs == 1501


async def test_rows_that_somebody_holds_are_left_for_the_next_time(world: World) -> None:
    connection = await world.connection(last_finished=YOUNG)
    held, free = [await finished(world, connection, OLD) for _ in range(2)]
    await world.sql("UPDATE {schema}.connections SET last_finished_at = $1", YOUNG)
    async with world.session() as session, session.transaction():
        await session.execute(
            world.qualified("SELECT FROM {schema}.sync_jobs WHERE id = $1 FOR UPDATE"), held
        )
        report = await asyncio.wait_for(world.engine.prune(), timeout=1)

    assert report.jobs == 1
    assert free not in [job.id for job in await world.jobs(connection)]


async def test_several_may_prune_at_once(world: World) -> None:
    connections = [await world.connection() for _ in range(20)]
    for connection in connections:
        for minute in range(5):
            await finished(world, connection, OLD + timedelta(minutes=minute))

    async with world.another_engine() as second, world.another_engine() as third:
        engines = (world.engine, second.engine, third.engine)
        await asyncio.gather(*(engine.prune() for engine in engines))
        await world.engine.prune()

    assert await world.sql("SELECT FROM {schema}.sync_jobs") == []
    rows = await world.sql("SELECT DISTINCT last_finished_at FROM {schema}.connections")
    assert [row["last_finished_at"] for row in rows] == [OLD + timedelta(minutes=4)]


@pytest.mark.engine(retention={"first_round_seconds": 0})
async def test_running_engine_prunes_and_measures(world: World, logged: Logged) -> None:
    await finished(world, await world.connection(), OLD)
    running = asyncio.create_task(world.engine.run(handle_signals=False, scheduler=False))
    await eventually(lambda: bool(logged("engine.pruned")))
    await eventually(lambda: world.metric("sync_engine_table_bytes", table="sync_jobs") is not None)
    world.engine.stop()
    await running

    assert (logged("engine.pruned")[0]["jobs"], logged("engine.pruned")[0]["signals"]) == (1, 0)
    assert world.metric("sync_engine_pruned_total", kind="jobs") == 1


@pytest.mark.engine(retention={"first_round_seconds": 0.3})
async def test_a_process_that_has_just_begun_leaves_what_is_old_for_later(
    world: World, logged: Logged
) -> None:
    await finished(world, await world.connection(), OLD)
    began = monotonic()
    running = asyncio.create_task(world.engine.run(handle_signals=False, scheduler=False))
    await eventually(lambda: bool(logged("engine.pruned")))
    waited = monotonic() - began
    world.engine.stop()
    await running

    assert waited >= 0.3


async def test_only_the_longest_living_process_prunes(world: World, pruner: Pruner) -> None:
    await world.sql(
        "INSERT INTO {schema}.workers VALUES (gen_random_uuid(), 'elsewhere', 7, '0.1.0',"
        " '{executor}', '{}', 50, 3, false, $1, $2)",
        NOW - timedelta(hours=1),
        NOW,
    )
    await finished(world, await world.connection(), OLD)

    assert await pruner.step() == ROUND_EVERY
    assert len(await world.sql("SELECT FROM {schema}.sync_jobs")) == 1

    world.clock.advance(seconds=60)
    while await pruner.step() != ROUND_EVERY:
        pass
    assert await world.sql("SELECT FROM {schema}.sync_jobs") == []


@pytest.mark.engine(retention={"signals_days": 14})
async def test_a_round_with_much_to_remove_is_followed_by_the_next_one_soon(
    world: World, pruner: Pruner
) -> None:
    """Tables stay small if they are pruned steadily."""
    connection = await world.connection()
    await world.sql(
        "INSERT INTO {schema}.signals (tenant_id, provider_slug, connection_id, kind, received_at)"
        " SELECT 'acme', 'github', $1, 'seen', $2 FROM generate_series(1, 20000)",
        connection.id,
        NOW - timedelta(days=4000),
    )
    pauses = [await pruner.step()]
    while pauses[-1] not in (NEXT_ROUND_SOON, ROUND_EVERY):
        pauses.append(await pruner.step())

    assert pauses[-1] == NEXT_ROUND_SOON
    assert await world.sql("SELECT FROM {schema}.signals") == []
    assert await pruner.step() == ROUND_EVERY  # nothing was left


async def test_age_of_the_oldest_snapshot_is_measured(
    world: World, maintenance: Maintenance
) -> None:
    async with world.session() as session, session.transaction(isolation="repeatable_read"):
        began_at = await session.fetchval("SELECT clock_timestamp()")
        before = await world.server_time()
        await maintenance.step()

    age = world.metric("sync_engine_oldest_snapshot_seconds")
    assert age is not None
    assert (before - began_at).total_seconds() <= age < 60


async def test_death_of_another_process_is_logged_once(
    world: World, logged: Logged, maintenance: Maintenance
) -> None:
    await maintenance.step()
    await world.sql(
        "INSERT INTO {schema}.workers VALUES (gen_random_uuid(), 'elsewhere', 7, '0.1.0',"
        " '{executor}', '{}', 50, 3, false, $1, $1)",
        NOW,
    )
    world.clock.advance(seconds=60)
    await maintenance.step()
    await maintenance.step()

    [death] = logged("engine.worker_died")
    assert (death["host"], death["worker_pid"]) == ("elsewhere", 7)
    assert world.metric("sync_engine_workers", status="dead") == 1
