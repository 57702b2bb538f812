"""E4 of the specification: a page is settled in one transaction, and never lost to a conflict."""

import asyncio
from typing import Any

import pytest

from support.world import World, at
from syncline import Signal, SyncResult, Transient

NEWS = Signal("opened", at("11:00"), {"number": 1}, dedupe_key="1")


async def test_success_clears_the_error(world: World) -> None:
    """E4: `succeeded`, `finished_at`, `started_at` kept, `error` cleared."""
    connection = await world.connection()
    job_id = await world.job(connection)
    await world.run_one(Transient("down"))
    world.clock.set(at("12:01"))

    async with world.during_run():
        world.clock.set(at("12:02"))

    job = await world.get_job(job_id)
    assert (job.status, job.attempts, job.error) == ("succeeded", 1, None)
    assert (job.started_at, job.finished_at) == (at("12:01"), at("12:02"))
    assert await world.sql("SELECT FROM {schema}.sync_jobs WHERE lease_token IS NOT NULL") == []


async def test_next_cursor_is_stored_as_given(world: World) -> None:
    """E4: `metadata.sync.cursor` becomes `next_cursor` where one was given, whatever it is."""
    connection = await world.connection(sync={"cursor": "old", "note": 1})
    for cursor in [{}, 0, "", [], False, {"ü": [1, None]}]:
        await world.job(connection)
        world.script(SyncResult(next_cursor=cursor))
        await world.run_due()

        assert await world.sync_metadata(connection) == {"cursor": cursor, "note": 1}


async def test_page_without_a_cursor_leaves_the_stored_one(world: World) -> None:
    """E4: no `next_cursor`, no change."""
    connection = await world.connection(sync={"cursor": "old"})
    await world.job(connection)

    await world.run_one(SyncResult([NEWS]))

    assert (await world.sync_metadata(connection))["cursor"] == "old"


@pytest.mark.parametrize("job_type", ["incremental", "full"])
async def test_follow_up_is_incremental_with_its_parents_priority(
    world: World, job_type: str
) -> None:
    """E3, E4: the rest of any pass are incremental jobs, due now, from the page's cursor."""
    connection = await world.connection()
    await world.job(connection, job_type=job_type, priority=7, scheduled_at=at("11:00"))

    await world.run_one(SyncResult(next_cursor={"page": 2}, has_more=True))

    follow_up = await world.pending(connection)
    assert (follow_up.job_type, follow_up.status, follow_up.priority) == (
        "incremental",
        "queued",
        7,
    )
    assert (follow_up.cursor, follow_up.scheduled_at) == ({"page": 2}, at("12:00"))
    assert (follow_up.attempts, follow_up.retry_after) == (0, None)


async def test_pages_follow_one_another_to_the_end(world: World) -> None:
    """E4: every page's cursor leads to the next, until one says that there is no more."""
    connection = await world.connection()
    await world.job(connection, job_type="full")
    world.script(*(SyncResult(next_cursor=page, has_more=page < 9) for page in range(10)))

    assert await world.run_due() == 10

    assert [cursor for _, cursor in world.connector.calls] == [None, *range(9)]
    assert (await world.sync_metadata(connection))["cursor"] == 9
    assert {job.status for job in await world.jobs(connection)} == {"succeeded"}


@pytest.mark.parametrize(("priority", "merged_priority"), [(30, 30), (5, 20)])
async def test_follow_up_merges_without_losing_what_is_better(
    world: World, priority: int, merged_priority: int
) -> None:
    """E4: the earlier time and the higher priority win, on whichever side they are."""
    connection = await world.connection()
    await world.job(connection, job_type="full", priority=priority)
    waiting = await world.job(
        connection, priority=20, scheduled_at=at("11:00"), cursor='"own"', retry_after=at("12:30")
    )

    await world.run_one(SyncResult(next_cursor="new", has_more=True))

    merged = await world.get_job(waiting)
    assert (merged.scheduled_at, merged.priority) == (at("11:00"), merged_priority)
    assert (merged.cursor, merged.retry_after) == ("new", at("12:30"))


@pytest.mark.engine(executor={"single_flight": "job_type"})
async def test_follow_up_marks_a_running_job(world: World) -> None:
    """E4: where a running incremental job holds the guard, it is followed with the cursor."""
    connection = await world.connection()
    running = await world.job(connection, priority=1)

    async with world.during_run(SyncResult([NEWS], next_cursor="its own")):
        full = await world.job(connection, job_type="full", priority=5)
        await world.run_one(SyncResult([NEWS], next_cursor="of the full pass", has_more=True))
        assert (await world.get_job(full)).status == "succeeded"
        [meanwhile] = await world.jobs(connection, job_type="incremental")
        assert meanwhile.id == running

    assert (await world.get_job(running)).status == "succeeded"
    follow_up = await world.pending(connection)
    assert (follow_up.job_type, follow_up.status) == ("incremental", "queued")
    assert (follow_up.cursor, follow_up.priority) == ("of the full pass", 5)


@pytest.mark.engine(executor={"single_flight": "job_type"})
async def test_marked_job_that_fails_takes_the_cursor_up_itself(world: World) -> None:
    """E4: the mark is not lost where the marked job is queued again."""
    connection = await world.connection()
    running = await world.job(connection)

    async with world.during_run(Transient("down")):
        await world.job(connection, job_type="full", priority=5)
        await world.run_one(SyncResult(next_cursor="of the full pass", has_more=True))

    job = await world.pending(connection)
    assert (job.id, job.status, job.attempts) == (running, "queued", 1)
    assert (job.cursor, job.priority) == ("of the full pass", 5)


@pytest.mark.parametrize(
    ("cursor", "page"),
    [
        ("here", SyncResult([NEWS], has_more=True)),
        ("here", SyncResult([NEWS], next_cursor="here", has_more=True)),
        ({"a": 1, "b": 2}, SyncResult([NEWS], next_cursor={"b": 2, "a": 1}, has_more=True)),
    ],
    ids=["no cursor", "the same cursor", "the same cursor in another order"],
)
async def test_has_more_without_progress_is_a_contract_error(
    world: World, cursor: Any, page: SyncResult
) -> None:
    """E4: it requeues with backoff: never an endless loop, a success, or a stopped connection."""
    connection = await world.connection(sync={"cursor": cursor})
    job_id = await world.job(connection)
    world.script(page)

    assert await world.run_due() == 1

    job = await world.get_job(job_id)
    assert (job.status, job.attempts, job.error["class"]) == ("queued", 1, "ContractError")
    assert job.retry_after is not None
    assert job.retry_after > at("12:00")
    assert len(await world.jobs(connection)) == 1
    assert await world.signals(connection) == []
    assert (await world.sync_metadata(connection))["cursor"] == cursor
    assert (await world.engine.connections.get(connection.id)).status == "active"


async def test_same_cursor_without_more_is_fine(world: World) -> None:
    """E4: a page may well end where it began."""
    connection = await world.connection(sync={"cursor": "here"})
    job_id = await world.job(connection)

    await world.run_one(SyncResult([NEWS], next_cursor="here"))

    assert (await world.get_job(job_id)).status == "succeeded"


async def test_signals_with_a_dedupe_key_are_stored_once(world: World) -> None:
    """A page that is run again repeats nothing, within a page or between two."""
    connection, other = await world.connection(), await world.connection()
    plain = Signal("opened", at("11:00"), {"number": 1})
    for one in (connection, connection, other):
        await world.job(one)
        await world.run_one(SyncResult([NEWS, NEWS, plain]))

    assert [s.dedupe_key for s in await world.signals(connection)] == ["1", None, None]
    assert [s.dedupe_key for s in await world.signals(other)] == ["1", None]


async def test_signals_keep_their_order_by_id(world: World) -> None:
    """Ids made by one process strictly increase, so a page's signals keep their order."""
    connection = await world.connection()
    await world.job(connection)
    page = [Signal("n", at("11:00"), {"n": n}) for n in range(1500)]

    await world.run_one(SyncResult(page))

    stored = await world.signals(connection)
    assert [signal.payload["n"] for signal in stored] == list(range(1500))
    assert [s.id for s in stored] == sorted({s.id for s in stored})


async def test_settle_is_one_transaction_or_none_of_it(world: World) -> None:
    """E4: a session that dies in mid-settle leaves nothing behind; the settle is done again."""
    connection = await world.connection(sync={"cursor": "old"})
    job_id = await world.job(connection)
    world.script(SyncResult([NEWS], next_cursor="new", has_more=True))
    world.script(SyncResult([NEWS], next_cursor="end"))

    async with world.locked_table("signals"):
        running = asyncio.create_task(world.run_due())
        await world.terminate(await world.blocked_session())

        assert (await world.pending(connection)).id == job_id
        assert (await world.get_job(job_id)).status == "running"
        assert (await world.sync_metadata(connection))["cursor"] == "old"
    assert await running == 2

    assert (await world.get_job(job_id)).status == "succeeded"
    assert len(await world.signals(connection)) == 1
    assert (await world.sync_metadata(connection))["cursor"] == "end"


async def test_job_deleted_by_hand_in_mid_run_settles_nothing(world: World) -> None:
    """P5, E6: a write that finds fewer rows than it should is fenced, not a success."""
    connection = await world.connection(sync={"cursor": "old"})
    await world.job(connection)

    async with world.during_run(SyncResult([NEWS], next_cursor="new", has_more=True)):
        await world.sql("DELETE FROM {schema}.sync_jobs")

    assert await world.jobs(connection) == []
    assert await world.signals(connection) == []
    assert (await world.sync_metadata(connection))["cursor"] == "old"
