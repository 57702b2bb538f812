"""Finished jobs go by ranges of ids: empty runs after hours, the others after days."""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from support.world import EMPTY_PAGE, World, at
from syncline import Connection, Connector, Signal, SyncResult
from syncline.engine.upkeep.batch_size import BATCH_SECONDS, FEWEST_ROWS, MOST_ROWS, BatchSize
from syncline.engine.upkeep.job_walks import JobRules
from syncline.engine.upkeep.retention import ROUND_EVERY, Pruner
from syncline.model import JobFilter
from syncline.settings import Settings
from syncline.store.stats.activity import first_id_at
from syncline.text import rfc3339

NOW = at("12:00")
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
HAS_RUN = "UPDATE {schema}.connections SET last_finished_at = $1"
IDS = "SELECT id FROM {schema}.sync_jobs ORDER BY id"


def made(when: datetime, number: int = 0) -> UUID:
    """Return an id that the engine could have made at a time."""
    return UUID(int=first_id_at(when).int + number)


async def ended(world: World, connection: Connection, ago: timedelta, **columns: Any) -> UUID:
    """Insert an empty run that ended some time ago, a moment after it was made."""
    then = NOW - ago
    row = {"id": made(then), "status": "succeeded", "finished_at": then, "is_empty": True}
    return await world.job(connection, **{**row, **columns})


async def left(world: World) -> list[UUID]:
    return [row["id"] for row in await world.sql(IDS)]


async def round_of(pruner: Pruner) -> None:
    while await pruner.step() != ROUND_EVERY:
        pass


async def test_empty_runs_go_after_a_day_and_the_others_after_fourteen(
    world: World, pruner: Pruner
) -> None:
    connection = await world.connection()
    await ended(world, connection, 2 * DAY)
    kept = [
        await ended(world, connection, 2 * DAY - HOUR, is_empty=None),  # it brought something
        await ended(world, connection, 2 * DAY - 2 * HOUR, is_empty=False),
        await ended(world, connection, 2 * DAY - 3 * HOUR, status="failed", is_empty=None),
        await ended(world, connection, 2 * DAY - 4 * HOUR, job_type="full"),  # somebody asked
        await ended(world, connection, 23 * HOUR),
        await ended(world, connection, HOUR),
    ]
    await ended(world, connection, 15 * DAY, is_empty=None)

    await round_of(pruner)

    assert await left(world) == kept
    assert world.metric("sync_engine_pruned_total", kind="jobs") == 1
    assert world.metric("sync_engine_pruned_total", kind="empty_jobs") == 1


async def test_engine_prunes_empty_runs_at_once(world: World) -> None:
    connection = await world.connection()
    await ended(world, connection, 2 * DAY)
    young = await ended(world, connection, HOUR)

    report = await world.engine.prune()

    assert (report.jobs, report.empty_jobs) == (0, 1)
    assert await left(world) == [young]


@pytest.mark.engine(retention={"empty_jobs_hours": None})
async def test_empty_runs_can_be_kept_like_the_others(world: World, pruner: Pruner) -> None:
    connection = await world.connection()
    await ended(world, connection, 15 * DAY)
    kept = [await ended(world, connection, ago) for ago in (2 * DAY, HOUR)]

    await round_of(pruner)

    assert await left(world) == kept


@pytest.mark.engine(retention={"jobs_days": 0.25})
async def test_empty_runs_are_never_kept_longer_than_others(world: World, pruner: Pruner) -> None:
    connection = await world.connection()
    await ended(world, connection, 7 * HOUR)
    young = await ended(world, connection, 5 * HOUR)

    await round_of(pruner)

    assert await left(world) == [young]


@pytest.mark.engine(retention={"jobs_days": None})
async def test_empty_runs_go_also_if_others_stay_for_ever(world: World, pruner: Pruner) -> None:
    connection = await world.connection()
    other = await ended(world, connection, 400 * DAY, is_empty=None)
    await ended(world, connection, 2 * DAY)
    young = await ended(world, connection, HOUR)

    await round_of(pruner)

    assert await left(world) == [other, young]


async def test_run_that_brings_nothing_is_marked_as_empty(world: World) -> None:
    for result in (SyncResult(), SyncResult([Signal("seen", NOW, {})]), SyncResult(next_cursor=7)):
        await world.job(await world.connection())
        await world.sql(HAS_RUN, NOW - HOUR)
        world.script(result)
        await world.run_due()

    rows = await world.sql("SELECT is_empty FROM {schema}.sync_jobs ORDER BY updated_at")
    assert [row["is_empty"] for row in rows] == [True, False, False]


class OnePageThenNothing(Connector):
    """Yields a page in its first attempt, fails, and finds nothing in its second."""

    provider = "github"
    attempts = 0

    async def sync(self, connection: Connection, cursor: Any) -> AsyncIterator[SyncResult]:
        self.attempts += 1
        if self.attempts == 1:
            yield SyncResult([Signal("seen", NOW, {})])
            raise RuntimeError("in the middle")


async def test_stream_that_stored_a_page_before_it_failed_is_not_empty(world: World) -> None:
    await world.job(await world.connection())
    await world.sql(HAS_RUN, NOW - HOUR)
    async with world.another_engine([OnePageThenNothing()]) as worker:
        await worker.run_due()
        world.clock.advance(seconds=60)
        await worker.run_due()

    [row] = await world.sql("SELECT status, is_empty FROM {schema}.sync_jobs")
    assert (row["status"], row["is_empty"]) == ("succeeded", False)


async def test_last_completion_and_success_outlive_an_empty_run(
    world: World, pruner: Pruner
) -> None:
    """S4: with an interval of a day, the last run may be pruned before the next one."""
    connection = await world.connection(sync={"interval_seconds": 86400})
    then = NOW - DAY - HOUR
    await ended(world, connection, DAY + HOUR)
    before = await world.engine.explain(connection.id)

    await round_of(pruner)

    assert await left(world) == []
    after = await world.engine.explain(connection.id)
    assert after.evidence["last_succeeded_at"] == before.evidence["last_succeeded_at"]
    assert after.evidence["last_succeeded_at"] == rfc3339(then)
    assert after.evidence["next_slot_at"] == before.evidence["next_slot_at"]
    await world.tick()
    assert (await world.pending(connection)).slot_at == then + DAY


async def test_last_success_outlives_its_job_also_if_failures_followed(
    world: World, pruner: Pruner
) -> None:
    connection = await world.connection()
    await ended(world, connection, 2 * DAY)
    failed = await ended(world, connection, DAY, status="failed", is_empty=None)
    await world.sql(HAS_RUN, NOW - DAY)  # as the tick does when it plans the next run

    await round_of(pruner)

    assert await left(world) == [failed]
    evidence = (await world.engine.explain(connection.id)).evidence
    assert evidence["last_succeeded_at"] == rfc3339(NOW - 2 * DAY)
    assert evidence["last_finished_at"] == rfc3339(NOW - DAY)


async def test_only_job_that_knows_of_a_failed_run_leaves_its_time(
    world: World, pruner: Pruner
) -> None:
    """S4: a job that failed for good counts, and has no success to be copied."""
    connection = await world.connection()
    await ended(world, connection, 15 * DAY, status="failed", is_empty=None)

    await round_of(pruner)

    assert await left(world) == []
    [row] = await world.sql("SELECT last_finished_at, last_succeeded_at FROM {schema}.connections")
    assert (row["last_finished_at"], row["last_succeeded_at"]) == (NOW - 15 * DAY, None)


async def test_superseded_job_goes_without_its_connection_being_written(
    world: World, pruner: Pruner
) -> None:
    connection = await world.connection()
    await ended(world, connection, 2 * DAY)
    await ended(world, connection, HOUR)
    before = await world.sql("SELECT xmin, c.* FROM {schema}.connections c")

    await round_of(pruner)

    assert len(await left(world)) == 1
    assert await world.sql("SELECT xmin, c.* FROM {schema}.connections c") == before


async def test_only_job_that_knows_stays_while_its_connection_is_held(
    world: World, pruner: Pruner
) -> None:
    job_id = await ended(world, await world.connection(), 2 * DAY - HOUR)
    async with world.session() as session, session.transaction():
        await session.execute(world.qualified("SELECT FROM {schema}.connections FOR UPDATE"))
        await round_of(pruner)
        assert await left(world) == [job_id]

    world.clock.advance(seconds=86400)  # the walk for those that were not ready
    await round_of(pruner)
    assert await left(world) == []


async def test_held_job_is_skipped_and_goes_later(world: World, pruner: Pruner) -> None:
    connection = await world.connection()
    held = await ended(world, connection, 2 * DAY - HOUR)
    await ended(world, connection, 2 * DAY - 2 * HOUR)
    young = await ended(world, connection, HOUR)
    async with world.session() as session, session.transaction():
        await session.execute(
            world.qualified("SELECT FROM {schema}.sync_jobs WHERE id = $1 FOR UPDATE"), held
        )
        await round_of(pruner)
        assert await left(world) == [held, young]

    await round_of(pruner)
    assert await left(world) == [held, young]  # nothing is walked twice

    world.clock.advance(seconds=2 * 3600)
    await round_of(pruner)
    assert await left(world) == [young]


async def test_walk_goes_on_where_another_process_stopped(world: World, pruner: Pruner) -> None:
    connection = await world.connection()
    await ended(world, connection, 26 * HOUR)
    await ended(world, connection, HOUR)
    async with world.another_engine() as other:
        await round_of(other.engine._upkeep.pruner)
    passed = await ended(world, connection, 27 * HOUR)

    await round_of(pruner)

    assert passed in await left(world)
    world.clock.advance(seconds=86400)
    await round_of(pruner)
    assert passed not in await left(world)


async def test_job_that_took_long_to_end_goes_with_the_second_look(
    world: World, pruner: Pruner
) -> None:
    connection = await world.connection()
    slow = await ended(world, connection, 20 * HOUR, id=made(NOW - 26 * HOUR))
    young = await ended(world, connection, timedelta())

    await round_of(pruner)
    assert await left(world) == [slow, young]

    world.clock.advance(seconds=23 * 3600)
    await round_of(pruner)
    assert await left(world) == [young]


async def test_job_that_ended_after_every_walk_had_passed_goes_within_a_day(
    world: World, pruner: Pruner
) -> None:
    await round_of(pruner)
    connection = await world.connection()
    await ended(world, connection, 15 * DAY, id=made(NOW - 100 * DAY), status="failed")

    await round_of(pruner)
    assert len(await left(world)) == 1

    world.clock.advance(seconds=86400)
    await round_of(pruner)
    assert await left(world) == []


async def test_jobs_with_random_ids_go_within_a_day(world: World, pruner: Pruner) -> None:
    connection = await world.connection()
    for _ in range(20):
        await ended(world, connection, 2 * DAY, id=uuid4())
    young = await ended(world, connection, HOUR)

    world.clock.advance(seconds=86400)
    await round_of(pruner)

    assert [id_ for id_ in await left(world) if id_.version == 4] == []
    assert young  # whether it goes too depends on its own age


async def test_pending_jobs_stay_in_every_walk(world: World, pruner: Pruner) -> None:
    await world.job(await world.connection(), id=made(NOW - 2 * DAY))
    await world.job(await world.connection(), id=made(NOW - 20 * DAY))
    lapsed = {"started_at": NOW - 20 * DAY, "lease_expires_at": NOW - 20 * DAY}
    for number, job_type in enumerate(("incremental", "full")):
        id_ = made(NOW - 21 * DAY, number)
        await world.running_job(await world.connection(), id=id_, job_type=job_type, **lapsed)
    before = await left(world)

    await round_of(pruner)
    await world.engine.prune()

    assert await left(world) == before


async def test_cancelled_run_that_may_still_go_on_stays(world: World) -> None:
    """E10: the connection's next job waits for it."""
    connection = await world.connection()
    columns = {"status": "cancelled", "is_empty": None}
    await ended(world, connection, 15 * DAY, **columns, stops_by=NOW)

    assert (await world.engine.prune()).jobs == 0
    world.clock.advance(seconds=15 * 86400)
    assert (await world.engine.prune()).jobs == 1


async def test_jobs_of_a_deleted_connection_need_no_pruning(world: World, pruner: Pruner) -> None:
    connection = await world.connection()
    await ended(world, connection, 2 * DAY)
    await world.engine.connections.delete(connection.id)

    await round_of(pruner)

    assert await left(world) == []


async def test_failed_job_that_a_pruned_run_followed_is_not_retried(
    world: World, pruner: Pruner
) -> None:
    connection = await world.connection(status="paused")
    await ended(world, connection, 3 * DAY, status="failed", is_empty=None)
    await ended(world, connection, 2 * DAY)
    await round_of(pruner)
    assert len(await left(world)) == 1
    await world.sql("UPDATE {schema}.connections SET status = 'active'")

    assert await world.engine.jobs.find(JobFilter(connection_id=connection.id), ["failed"]) == []


async def test_settled_empty_run_goes_after_its_hours(world: World) -> None:
    await world.connection(last_finished=at("11:40"))
    for _ in range(2):
        world.script(EMPTY_PAGE)
        await world.tick()
        world.clock.advance(seconds=200)
        await world.run_due()
        world.clock.advance(seconds=900)

    world.clock.advance(seconds=86400)
    assert (await world.engine.prune()).empty_jobs == 2


@pytest.mark.parametrize(
    ("retention", "ages"),
    [
        ({}, {"empty": 24, "empty_again": 48, "others": 336}),
        ({"empty_jobs_hours": None}, {"others": 336}),
        ({"jobs_days": None}, {"empty": 24, "empty_again": 48}),
        ({"jobs_days": None, "empty_jobs_hours": None}, {}),
        ({"jobs_days": 1.5}, {"empty": 24, "others": 36}),
        ({"jobs_days": 1}, {"others": 24}),
    ],
)
def test_walks_look_when_jobs_are_as_old_as_they_may_be(
    retention: dict[str, Any], ages: dict[str, float]
) -> None:
    rules = JobRules(Settings(retention=retention))

    assert {name: age // HOUR for name, age in rules.ages.items()} == ages


def test_batches_grow_and_shrink_to_their_time() -> None:
    size = BatchSize()
    size.learn(BATCH_SECONDS / 10, is_full=True)
    assert size.rows == 2 * FEWEST_ROWS
    size.learn(BATCH_SECONDS / 10, is_full=False)
    assert size.rows == 2 * FEWEST_ROWS
    for _ in range(20):
        size.learn(BATCH_SECONDS / 10, is_full=True)
    assert size.rows == MOST_ROWS
    size.learn(BATCH_SECONDS * 10, is_full=False)
    assert size.rows == MOST_ROWS / 2
