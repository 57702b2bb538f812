"""A page of a stream against whoever else reaches for its job, in written-out orders."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest

from support.fakes import HeldStream
from support.sessions import actor, claim, due_connection, ended_into_waiting, made_to_wait
from support.world import World, at
from syncline import Connection, Signal, SyncResult
from syncline.clock import Dice, InjectedClock, monotonic
from syncline.engine.context import EngineContext
from syncline.engine.worker.attempt import PageChecker, PageStream
from syncline.engine.worker.streams import StreamEnd, Streams
from syncline.policy.outcome import Interrupted
from syncline.sdk.page import Page
from syncline.store.pool import Pool, Transaction

pytestmark = pytest.mark.usefixtures("no_deadlock")

Act = Callable[[World, Connection, UUID], Coroutine[Any, Any, None]]


def page(number: int) -> SyncResult:
    return SyncResult([Signal("seen", at("11:00"), {"n": number})], next_cursor=number)


async def cancel(world: World, connection: Connection, job_id: UUID) -> None:
    await world.engine.jobs.cancel(job_id)


async def pause(world: World, connection: Connection, job_id: UUID) -> None:
    await world.engine.connections.pause(connection.id)


async def delete(world: World, connection: Connection, job_id: UUID) -> None:
    await world.engine.connections.delete(connection.id)


@pytest.mark.parametrize(
    ("act", "act_first", "stored"),
    [
        (cancel, True, []),
        (cancel, False, [1]),
        (pause, True, [1]),
        (pause, False, [1, 2]),
        (delete, True, []),
        (delete, False, []),
    ],
    ids=lambda value: getattr(value, "__name__", None) if callable(value) else None,
)
async def test_a_page_meets_somebody_who_acts_on_its_job(
    world: World, act: Act, act_first: bool, stored: list[int]
) -> None:
    """Whoever came first is obeyed: a page that is fenced is not stored, or it is the last."""
    connection, job_id = await due_connection(world)
    stream = HeldStream(page(1), page(2), page(3))
    world.connector.script.append(stream)
    async with actor(world) as gate:
        running = asyncio.create_task(world.engine.run_due())
        await stream.started.wait()
        if act_first:
            await gate.lock(connection)
            acted = await made_to_wait(world, act(world, connection, job_id))
        else:
            await gate.lock_job(job_id)
            await ended_into_waiting(world, stream)
            acted = await made_to_wait(world, act(world, connection, job_id))
        await gate.commit()
        await acted
        stream.let_go.set()  # one that comes sooner might get the row before whoever waits
        stream.go_on.set()
        await running

    assert [signal.payload["n"] for signal in await world.signals(connection)] == stored
    assert await world.sql("SELECT FROM {schema}.sync_jobs WHERE status = 'running'") == []
    assert await world.engine.verify() == []


async def test_the_reaper_passes_by_a_job_whose_page_is_being_stored(world: World) -> None:
    """An expired lease that nobody reaped may still store its page, and is renewed by it."""
    _, job_id = await due_connection(world)
    stream = HeldStream(page(1))
    world.connector.script.append(stream)
    async with actor(world) as gate:
        running = asyncio.create_task(world.engine.run_due())
        await stream.started.wait()
        world.clock.advance(seconds=31)
        await gate.sql("LOCK TABLE {schema}.signals IN ACCESS EXCLUSIVE MODE")
        await ended_into_waiting(world, stream)
        async with world.another_engine(connectors=[]) as reaper:
            await reaper.run_due()
        await gate.commit()
        stream.go_on.set()
        await running

    job = await world.get_job(job_id)
    assert (job.status, job.attempts, job.cursor) == ("succeeded", 0, 1)


class Forgetful(Pool):
    """Commits, and loses the answer, as often as it is told to."""

    answers_to_lose = 1

    @asynccontextmanager
    async def transaction(self, *, is_bounded: bool = False) -> AsyncIterator[Transaction]:
        async with super().transaction(is_bounded=is_bounded) as tx:
            yield tx
        if self.answers_to_lose:
            self.answers_to_lose -= 1
            raise ConnectionResetError("the answer was lost")


async def follow(world: World, pool: Pool, pages: AsyncIterator[SyncResult]) -> Page | Interrupted:
    """Claim the only job and commit the pages of its stream through a pool."""
    async with actor(world) as claimer:
        [claimed] = await claim(claimer.tx, world)
        await claimer.commit()
    clock, telemetry = InjectedClock(world.clock), world.engine.telemetry
    context = EngineContext(pool, world.settings, clock, Dice(), telemetry)
    runs = world.engine._worker.runs
    await pool.open()
    try:
        streams = Streams(context, runs, PageChecker(world.settings.executor.page_limits))
        return await streams.follow(runs.add(claimed, monotonic()), PageStream(pages, None))
    finally:
        await pool.close()


@pytest.mark.parametrize("key", ["1", None], ids=["with a key", "without a key"])
async def test_a_page_whose_answer_was_lost_is_not_stored_twice(
    world: World, key: str | None
) -> None:
    connection, job_id = await due_connection(world)
    pool = Forgetful(world.url, world.settings.schema, size=1)

    async def pages() -> AsyncIterator[SyncResult]:
        yield SyncResult([Signal("seen", at("11:00"), {}, dedupe_key=key)], next_cursor=1)

    assert await follow(world, pool, pages()) == StreamEnd()

    assert pool.answers_to_lose == 0
    assert len(await world.signals(connection)) == 1
    job = await world.get_job(job_id)
    assert (job.status, job.cursor) == ("running", 1)


async def test_a_page_whose_answer_was_lost_in_a_failover_is_not_taken_for_stored(
    world: World,
) -> None:
    """The new primary has neither this page nor the one before it."""
    connection, job_id = await due_connection(world)

    class FailingOver(Forgetful):
        answers_to_lose = 0

        @asynccontextmanager
        async def transaction(self, *, is_bounded: bool = False) -> AsyncIterator[Transaction]:
            try:
                async with super().transaction(is_bounded=is_bounded) as tx:
                    yield tx
            except ConnectionResetError:
                await world.sql("DELETE FROM {schema}.signals")
                await world.sql("UPDATE {schema}.sync_jobs SET cursor = NULL, committed_pages = 0")
                raise

    pool = FailingOver(world.url, world.settings.schema, size=1)

    async def pages() -> AsyncIterator[SyncResult]:
        yield page(1)
        pool.answers_to_lose = 1
        yield page(2)
        yield page(3)

    assert await follow(world, pool, pages()) == Interrupted()

    assert await world.signals(connection) == []
    assert (await world.get_job(job_id)).cursor is None


async def test_a_first_page_is_not_stored_under_the_lease_of_another(world: World) -> None:
    """The job was reaped and claimed elsewhere before the connector brought anything."""
    connection, _ = await due_connection(world)

    async def pages() -> AsyncIterator[SyncResult]:
        await world.sql("UPDATE {schema}.sync_jobs SET lease_token = gen_random_uuid()")
        yield page(1)

    pool = Pool(world.url, world.settings.schema, size=1)
    assert await follow(world, pool, pages()) == Interrupted()

    assert await world.signals(connection) == []
