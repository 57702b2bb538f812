"""The tick against everybody else, in written-out orders."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import asyncpg
import pytest

from support.sessions import Actor, actor, ended_into_being_held, made_to_wait
from support.world import World, at
from syncline import SyncResult
from syncline.engine.scheduler.tick import TickReport
from syncline.store.data import connections
from syncline.store.queue import jobs, schedule
from syncline.store.queue.jobs import Closing
from syncline.store.queue.schedule import DueConnections

pytestmark = pytest.mark.usefixtures("no_deadlock")
NOON = at("12:00")


async def test_two_schedulers_leave_one_job(world: World) -> None:
    """The second one finds the connection locked and passes it by; nothing of it is written."""
    connection = await world.connection(last_finished="11:40")
    async with actor(world) as first:
        assert await lock_due(first) == [connection.id]

        second = await world.tick("12:00")
        assert (second.scheduled, second.skipped) == (0, 0)
        assert "next_run_at" not in await world.sync_metadata(connection)

    assert (await world.tick("12:00", jitter_seconds=0)).scheduled == 1
    assert (await world.pending(connection)).scheduled_at == at("11:55")


async def test_where_everything_is_locked_a_scheduler_locks_nothing(world: World) -> None:
    """A lock tells its connections only where they are not all of them: none is not all."""
    await world.connection(last_finished="11:40")
    async with actor(world) as first, actor(world) as second:
        assert len(await lock_due(first)) == 1
        assert await lock_due(second) == []


async def test_where_some_are_locked_a_scheduler_locks_the_others(world: World) -> None:
    ids = sorted([(await world.connection(last_finished="11:40")).id for _ in range(3)])
    async with actor(world) as first, actor(world) as second:
        assert (await connections.lock(first.tx, ids[:1])).keys() == {ids[0]}
        assert await lock_due(second) == ids[1:]


async def test_backlog_counts_what_another_scheduler_is_about_to_plan(world: World) -> None:
    """S10: it is counted over all of them, whoever will schedule them."""
    for _ in range(3):
        await world.connection(last_finished="11:40")
    async with actor(world) as first:
        assert len(await lock_due(first)) == 3

        second = await world.tick("12:00")

    assert (second.overdue, second.scheduled) == (3, 0)


@pytest.mark.engine(scheduler={"batch_size": 3})
async def test_two_schedulers_share_a_backlog(world: World) -> None:
    connections = [await world.connection(last_finished="11:40") for _ in range(40)]
    async with world.another_engine() as other:
        reports = await asyncio.gather(world.engine.tick(), other.engine.tick())

    assert sum(report.scheduled for report in reports) == 40
    for connection in connections:
        await world.pending(connection)


async def test_a_scheduler_passes_by_what_another_has_just_planned(world: World) -> None:
    """Between the walk's beginning and its lock the connection was planned: it is due no more."""
    connection = await world.connection(last_finished="11:40")
    await world.tick("12:00")

    async with actor(world) as late:
        assert await lock_due(late) == []
    assert (await world.tick()).scheduled == 0
    await world.pending(connection)


async def test_chapters_of_what_is_due_miss_nothing_and_repeat_nothing(world: World) -> None:
    """Many are to be looked at at once: all that were inserted by hand."""
    ids = {(await world.connection()).id for _ in range(5)}
    await world.connection(last_finished="11:59")
    await world.tick("12:00")
    await world.sql("UPDATE {schema}.connections SET look_at = $1 WHERE id = ANY ($2)", NOON, ids)
    found, after = [], None
    async with actor(world) as scheduler:
        while due := await schedule.next_due(scheduler.tx, until=NOON, after=after, limit=2):
            assert due.ids == sorted(due.ids)
            found += due.ids
            after = due.after

    assert len(found) == 5
    assert set(found) == ids


async def test_a_job_inserted_by_hand_between_lock_and_insert(world: World) -> None:
    """Neither the tick nor the person meets an error, and the metadata is nobody's plan."""
    connection = await world.connection(last_finished="11:40")
    async with tick_between_lock_and_insert(world) as (tick, gate), actor(world) as person:
        by_hand = await made_to_wait(world, person.insert_job(connection))
        await gate.rollback()
        await by_hand
        await person.commit()
        report = await tick

    assert (await world.pending(connection)).slot_at is None
    assert (report.scheduled, report.skipped) == (1, 1)  # the gate's own connection, and this one
    assert "next_run_at" not in await world.sync_metadata(connection)


async def test_a_job_inserted_by_hand_after_the_insert_meets_the_guard(world: World) -> None:
    connection = await world.connection(last_finished="11:40")
    walk = tick_between_lock_and_insert(world, last=True)
    async with walk as (tick, gate), actor(world) as person:
        by_hand = await made_to_wait(world, person.insert_job(connection))
        await gate.rollback()
        await tick
        with pytest.raises(asyncpg.UniqueViolationError):
            await by_hand

    await world.pending(connection)
    assert "next_run_at" in await world.sync_metadata(connection)


async def test_an_open_transaction_holds_up_its_own_connection_alone(world: World) -> None:
    """Somebody began to insert a job by hand and went to lunch."""
    held_up = await world.connection(last_finished="11:40")
    healthy = await world.connection(last_finished="11:40")
    async with actor(world) as person:
        await person.insert_job(held_up)

        report = await world.tick("12:00")
        assert (report.scheduled, report.overdue) == (1, 2)
        await world.pending(healthy)
    assert (await world.tick("12:01")).scheduled == 1
    await world.pending(held_up)


async def test_an_open_transaction_on_a_job_holds_up_its_own_connection_alone(world: World) -> None:
    """Somebody put a finished job back into the queue by hand and went to lunch."""
    held_up = await world.connection(last_finished="11:40")
    healthy = await world.connection(last_finished="11:40")
    async with actor(world) as person:
        await person.sql(
            "UPDATE {schema}.sync_jobs SET status = 'queued', finished_at = NULL"
            " WHERE connection_id = $1",
            held_up.id,
        )

        report = await world.tick("12:00")
        assert (report.scheduled, report.overdue) == (1, 2)
        await world.pending(healthy)
    assert (await world.tick("12:01")).scheduled == 1
    await world.pending(held_up)


async def test_an_open_transaction_on_a_job_holds_up_no_other_cancellation(world: World) -> None:
    """Two connections left active by plain SQL; somebody holds a queued job of one of them."""
    held_up, healthy = [await world.connection(last_finished="11:40") for _ in range(2)]
    assert (await world.tick("12:00")).scheduled == 2
    await world.sql("UPDATE {schema}.connections SET status = 'paused'")
    async with actor(world) as person:
        await person.sql(
            "SELECT FROM {schema}.sync_jobs WHERE connection_id = $1 FOR UPDATE", held_up.id
        )
        await world.tick("12:01")
        assert [job.status for job in await world.jobs(healthy, slot_at=at("11:55"))] == [
            "cancelled"
        ]
        await world.pending(held_up)
    await world.tick("12:02")
    assert [job.status for job in await world.jobs(held_up, slot_at=at("11:55"))] == ["cancelled"]


async def test_the_tick_passes_by_what_is_being_settled(world: World) -> None:
    """Connection, then job, in one open transaction: the tick waits for neither."""
    connection = await world.connection()
    job_id = await world.job(connection)
    async with world.during_run() as run, actor(world) as settle:
        [row] = await world.sql("SELECT lease_token FROM {schema}.sync_jobs")
        await connections.lock(settle.tx, [connection.id])
        closing = Closing(job_id, row["lease_token"], "succeeded", 0, finished_at=at("12:00"))
        assert job_id in await jobs.close(settle.tx, [closing])

        assert (await world.tick("12:30")).due == 0
        await settle.commit()
        run.let_go.set()

    assert (await world.tick("12:30", jitter_seconds=0)).scheduled == 1
    assert (await world.pending(connection)).scheduled_at == at("12:30")


async def test_a_settle_waits_for_the_tick_with_no_job_in_its_hands(world: World) -> None:
    """The settle asks for the connection first, so the tick that has it can touch every job."""
    connection = await world.connection()
    job_id = await world.job(connection)
    page = SyncResult(next_cursor="later", has_more=True)
    async with world.during_run(page) as run, actor(world) as tick:
        assert await lock_due(tick) == [connection.id]
        await ended_into_being_held(run)
        await tick.sql("SELECT FROM {schema}.sync_jobs FOR UPDATE NOWAIT")
        await tick.commit()

    assert (await world.get_job(job_id)).status == "succeeded"
    assert (await world.pending(connection)).cursor == "later"


@asynccontextmanager
async def tick_between_lock_and_insert(
    world: World, *, last: bool = False
) -> AsyncIterator[tuple["asyncio.Task[TickReport]", Actor]]:
    """Lend a tick that has locked what is due, and waits at the first (or last) insert."""
    # A batch is written in the order of ids.
    id_ = UUID(int=2**128 - 1 if last else 1)
    gate = await world.connection(last_finished="11:40", id_=id_)
    async with actor(world) as keeper:
        await keeper.sql(
            "UPDATE {schema}.sync_jobs SET status = 'queued', finished_at = NULL"
            " WHERE connection_id = $1",
            gate.id,
        )
        yield await made_to_wait(world, world.tick("12:00", jitter_seconds=0)), keeper


async def lock_due(scheduler: Actor) -> list[UUID]:
    due = await schedule.next_due(scheduler.tx, until=at("12:01"), after=None)
    if due is None:
        return []
    connections = DueConnections(due.ids, horizon=at("12:01"))
    locked = await connections.lock(scheduler.tx, after=schedule.BEFORE_ALL, limit=100)
    return locked.ids
