"""The settle against whoever else reaches for the same job or connection, in written-out orders."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from uuid import UUID, uuid4

import pytest

from support.fakes import HeldRun
from support.sessions import (
    PATIENCE_SECONDS,
    actor,
    claim,
    due_connection,
    ended_into_being_held,
    ended_into_waiting,
    made_to_wait,
)
from support.world import World, at
from syncline import Connection, Signal, SyncResult, Transient
from syncline.store.data import connections
from syncline.store.queue import jobs
from syncline.store.queue.claims import Claim
from syncline.store.queue.jobs import Closing, FollowUp

pytestmark = pytest.mark.usefixtures("no_deadlock")

PAGE = SyncResult([Signal("seen", at("11:00"), {"n": 1})], next_cursor={"page": 2})
MORE = SyncResult([Signal("seen", at("11:00"), {"n": 1})], next_cursor={"page": 2}, has_more=True)

in_every_ending = pytest.mark.parametrize(
    "ending", [PAGE, MORE, Transient("not now")], ids=["page", "more", "retry"]
)


@pytest.mark.parametrize(
    "ending", [PAGE, MORE, Transient("not now")], ids=["page", "more", "retry"]
)
async def test_a_trigger_before_the_settle_brings_exactly_one_more(
    world: World, ending: SyncResult | Exception
) -> None:
    connection, job_id = await due_connection(world)
    async with world.during_run(ending) as run, actor(world) as gate:
        await gate.lock(connection)
        trigger = await made_to_wait(world, world.engine.trigger(connection.id))
        await ended_into_being_held(run)
        await gate.commit()
        assert (await trigger).id == job_id

    assert (await world.pending(connection)).priority == 10


@pytest.mark.parametrize(
    "ending", [PAGE, MORE, Transient("not now")], ids=["page", "more", "retry"]
)
async def test_a_trigger_after_the_settle_brings_exactly_one_more(
    world: World, ending: SyncResult | Exception
) -> None:
    connection, job_id = await due_connection(world)
    async with world.during_run(ending) as run, actor(world) as gate:
        await gate.lock_job(job_id)
        await ended_into_waiting(world, run)
        trigger = await made_to_wait(world, world.engine.trigger(connection.id))
        await gate.commit()
        job = await trigger

    pending = await world.pending(connection)
    assert (pending.id, pending.priority, pending.retry_after) == (job.id, 10, None)


async def test_a_trigger_while_the_job_is_being_claimed_brings_one_more(world: World) -> None:
    connection, job_id = await due_connection(world)
    async with actor(world) as claimer:
        await claim(claimer.tx, world)
        trigger = await made_to_wait(world, world.engine.trigger(connection.id))
        await claimer.commit()
        job = await trigger

    assert (job.id, job.status) == (job_id, "running")
    world.clock.advance(seconds=31)  # the claimer never runs it; the reaper brings it back
    world.script(PAGE)
    assert await world.run_due() == 1
    assert [job.status for job in await world.jobs(connection)] == ["succeeded"]


Act = Callable[[World, Connection, UUID], Awaitable[object]]


async def pause(world: World, connection: Connection, job_id: UUID) -> None:
    await world.engine.connections.pause(connection.id)


async def delete(world: World, connection: Connection, job_id: UUID) -> None:
    await world.engine.connections.delete(connection.id)


async def cancel(world: World, connection: Connection, job_id: UUID) -> None:
    with suppress(ValueError):  # it has ended already
        await world.engine.jobs.cancel(job_id)


async def run_against(world: World, act: Act, *, act_first: bool) -> tuple[Connection, UUID]:
    """Let a run with more pages end while somebody acts on it, in one of the two orders."""
    connection, job_id = await due_connection(world)
    async with world.during_run(MORE) as run, actor(world) as gate:
        if act_first:
            await gate.lock(connection)
            acted = await made_to_wait(world, act_on(act, world, connection, job_id))
            await ended_into_being_held(run)
        else:
            await gate.lock_job(job_id)
            await ended_into_waiting(world, run)
            acted = await made_to_wait(world, act_on(act, world, connection, job_id))
        await gate.commit()
        await acted
    return connection, job_id


async def act_on(act: Act, world: World, connection: Connection, job_id: UUID) -> None:
    await act(world, connection, job_id)


@pytest.mark.parametrize("first", [True, False], ids=["pause first", "settle first"])
async def test_a_pause_keeps_the_page_and_cancels_the_rest(world: World, first: bool) -> None:
    connection, job_id = await run_against(world, pause, act_first=first)

    by_id = {job.id: job for job in await world.jobs(connection)}
    assert by_id.pop(job_id).status == "succeeded"
    [follow_up] = by_id.values()
    assert (follow_up.status, follow_up.cursor) == ("cancelled", {"page": 2})
    assert len(await world.signals(connection)) == 1
    assert (await world.sync_metadata(connection))["cursor"] == {"page": 2}
    assert await world.engine.verify() == []


@pytest.mark.parametrize("first", [True, False], ids=["delete first", "settle first"])
async def test_a_deletion_wins(world: World, first: bool) -> None:
    await run_against(world, delete, act_first=first)

    for table in ("connections", "sync_jobs", "signals"):
        assert await world.sql(f"SELECT FROM {{schema}}.{table}") == []


async def test_a_cancel_before_the_settle_fences_it(world: World) -> None:
    connection, job_id = await run_against(world, cancel, act_first=True)

    [job] = await world.jobs(connection)
    assert (job.id, job.status) == (job_id, "cancelled")
    assert await world.signals(connection) == []
    assert "cursor" not in await world.sync_metadata(connection)


async def test_a_cancel_after_the_settle_finds_it_ended(world: World) -> None:
    connection, job_id = await run_against(world, cancel, act_first=False)

    assert (await world.get_job(job_id)).status == "succeeded"
    assert (await world.pending(connection)).cursor == {"page": 2}
    assert len(await world.signals(connection)) == 1


@pytest.mark.engine(executor={"single_flight": "job_type"})
async def test_a_follow_up_meets_a_job_that_is_being_claimed(world: World) -> None:
    """The full pass hands its cursor to the incremental job that started a moment before."""
    connection = await world.connection()
    await world.job(connection, job_type="full")
    async with world.during_run(MORE) as run, actor(world) as claimer:
        incremental = await world.job(connection)
        await claim(claimer.tx, world)
        await ended_into_waiting(world, run)
        await claimer.commit()

    [row] = await world.sql(
        "SELECT status, again_cursor, cursor FROM {schema}.sync_jobs WHERE id = $1", incremental
    )
    assert (row["status"], row["again_cursor"], row["cursor"]) == ("running", '{"page": 2}', None)
    assert (await world.pending(connection)).id == incremental


async def test_a_claim_passes_by_a_job_that_a_follow_up_is_merged_into(world: World) -> None:
    connection = await world.connection()
    full = await world.job(connection, job_type="full")
    incremental = await world.job(connection, cursor='{"page": 1}', scheduled_at=at("12:30"))
    async with actor(world) as settle:
        [claimed] = await claim(settle.tx, world)
        await settle.commit()
        await settle.begin()
        await connections.lock(settle.tx, [connection.id])
        closing = Closing(full, claimed.lease_token, "succeeded", 0, finished_at=at("12:00"))
        assert full in await jobs.close(settle.tx, [closing])
        assert await jobs.enqueue_follow_ups(settle.tx, [follow_up(claimed)], now=at("12:00")) == 1

        assert await world.run_due() == 0
        await settle.commit()

    world.script(PAGE)
    assert await world.run_due() == 1
    assert world.connector.calls == [(connection.id, {"page": 2})]
    assert (await world.get_job(incremental)).status == "succeeded"


def follow_up(claimed: Claim) -> FollowUp:
    return FollowUp(
        id=uuid4(),
        tenant_id=claimed.tenant_id,
        provider_slug=claimed.provider_slug,
        connection_id=claimed.connection_id,
        job_type="incremental",
        priority=0,
        cursor='{"page": 2}',
        status="queued",
    )


async def test_an_open_transaction_holds_up_the_settle_of_its_own_connection(world: World) -> None:
    """Somebody edits a connection by hand and goes to lunch while it and another run."""
    [held_up, healthy] = [await due_connection(world) for _ in range(2)]
    runs = [HeldRun(PAGE), HeldRun(PAGE)]
    world.script(*runs)
    async with actor(world) as person:
        await person.lock(held_up[0])
        running = asyncio.create_task(world.engine.run_due())
        for run in runs:
            await run.started.wait()
        for run in runs:
            run.let_go.set()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await world.get_job(healthy[1])).status != "succeeded":
                assert not running.done()
        assert (await world.get_job(held_up[1])).status == "running"
        await person.commit()
    assert await running == 2
    assert (await world.get_job(held_up[1])).status == "succeeded"
    assert len(await world.signals(held_up[0])) == 1
