"""Jobs whose backoff has ended: what a process remembers of them, and when it looks again."""

from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import UUID

import pytest

from support.world import World, at
from syncline import SyncResult
from syncline.clock import clock_from
from syncline.engine.worker.claimer import EndedBackoffs
from syncline.store.pool import Pool, SessionLease


@pytest.fixture
async def session(world: World) -> AsyncIterator[SessionLease]:
    pool = Pool(world.url, world.schema, size=1)
    await pool.open()
    async with pool.session() as session:
        yield session
    await pool.close()


def remembered(world: World, *, most_known: int) -> EndedBackoffs:
    world.clock.set(at("12:00"))
    return EndedBackoffs(clock_from(world.clock), ["github"], most_known=most_known)


async def add_ended(world: World, count: int) -> list[UUID]:
    """Add jobs whose backoffs ended in another order than the one in which the jobs stand."""
    return [
        await world.job(
            await world.connection(),
            attempts=1,
            scheduled_at=at("11:00") + timedelta(seconds=place),
            retry_after=at("11:59") - timedelta(seconds=place),
        )
        for place in range(count)
    ]


async def settle(world: World, ids: list[UUID]) -> list[dict[str, UUID]]:
    """End jobs by plain SQL, and return rows as a claim would have."""
    await world.sql(
        "UPDATE {schema}.sync_jobs SET status = 'succeeded', finished_at = now()"
        " WHERE id = ANY ($1)",
        ids,
    )
    return [{"id": id_} for id_ in ids]


async def test_they_are_remembered_in_the_order_of_their_claim(
    world: World, session: SessionLease
) -> None:
    ended = remembered(world, most_known=10)
    ids = await add_ended(world, 3)

    await ended.look(session, 1)

    assert list(ended.first(10)) == ids


async def test_the_first_ones_are_remembered_and_others_once_those_run_out(
    world: World, session: SessionLease
) -> None:
    ended = remembered(world, most_known=3)
    ids = await add_ended(world, 5)

    await ended.look(session, 1)
    assert list(ended.first(10)) == ids[:3]
    ended.take(ended.first(2), await settle(world, ids[:2]), is_full=True)
    await ended.look(session, 1)  # one is left, which is enough
    assert list(ended.first(10)) == ids[2:3]
    await ended.look(session, 2)

    assert list(ended.first(10)) == ids[2:]


async def test_what_others_have_taken_is_not_looked_for_at_once(
    world: World, session: SessionLease
) -> None:
    """Or a process would do nothing but look while somebody holds them all."""
    ended = remembered(world, most_known=2)
    await add_ended(world, 3)
    await ended.look(session, 2)

    ended.take(ended.first(2), [], is_full=False)
    await ended.look(session, 2)

    assert not ended.has_more
    ended.look_again()
    await ended.look(session, 2)
    assert ended.has_more


async def test_what_a_full_claim_did_not_reach_is_offered_again(
    world: World, session: SessionLease
) -> None:
    ended = remembered(world, most_known=9)
    ids = await add_ended(world, 4)
    await ended.look(session, 2)

    ended.take(ended.first(4), [{"id": ids[0]}, {"id": ids[2]}], is_full=True)
    assert list(ended.first(4)) == ids[3:]  # the second was passed over

    ended.take(ended.first(4), [], is_full=True)  # of ready jobs, which came before
    assert list(ended.first(4)) == ids[3:]


async def test_a_backoff_ends_without_a_write(world: World) -> None:
    """The claim takes the row as its failure left it: a write before would cost as much again."""
    connection = await world.connection()
    job_id = await world.job(connection, attempts=1, retry_after=at("11:59"))
    await world.sql(
        "ALTER TABLE {schema}.sync_jobs ADD CONSTRAINT unwritten"
        " CHECK (status <> 'queued' OR retry_after IS NOT NULL)"
    )
    try:
        world.script(SyncResult())
        assert await world.run_due("12:00") == 1
    finally:
        await world.sql("ALTER TABLE {schema}.sync_jobs DROP CONSTRAINT unwritten")
    assert (await world.get_job(job_id)).status == "succeeded"


async def test_a_running_worker_finds_them_by_itself(world: World) -> None:
    """Also those that had to wait for another job of their connection."""
    connection = await world.connection()
    await world.job(connection, job_type="full", scheduled_at=at("11:00"))
    await world.job(connection, attempts=1, scheduled_at=at("11:30"), retry_after=at("11:59"))
    world.script(SyncResult(), SyncResult())

    assert await world.run_due("12:00") == 2

    assert {job.status for job in await world.jobs(connection)} == {"succeeded"}
