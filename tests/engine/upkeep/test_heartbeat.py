"""The worker registry: each process registers, beats, and is shown; a dead one is noticed."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from support.fakes import HeldRun, eventually
from support.world import EMPTY_PAGE, World
from syncline.engine.upkeep.heartbeat import DEAD_AFTER, FORGOTTEN_AFTER
from syncline.engine.upkeep.maintenance import Maintenance
from syncline.model import Worker


@asynccontextmanager
async def running(world: World, **roles: bool) -> AsyncIterator[None]:
    task = asyncio.create_task(world.engine.run(handle_signals=False, **roles))
    await eventually(lambda: registered(world))
    yield
    world.engine.stop()
    await task


async def registered(world: World) -> bool:
    return bool(await world.engine.workers.list())


async def only_worker(world: World) -> Worker:
    [worker] = await world.engine.workers.list()
    return worker


@pytest.mark.engine(executor={"concurrency": 7})
async def test_process_is_shown_while_it_lives_and_gone_when_it_left(world: World) -> None:
    async with running(world):
        worker = await only_worker(world)

        assert (worker.host, worker.pid) == (socket.gethostname(), os.getpid())
        assert (worker.status, worker.roles) == ("alive", ["scheduler", "executor"])
        assert worker.providers == sorted(world.engine.providers)
        assert (worker.slots, worker.busy) == (7, 0)
        assert worker.started_at == worker.beat_at == world.clock()

    assert await world.engine.workers.list() == []


async def test_scheduler_alone_has_no_slots_and_serves_no_provider(world: World) -> None:
    async with running(world, executor=False):
        worker = await only_worker(world)

        assert (worker.roles, worker.slots, worker.providers) == (["scheduler"], 0, [])


async def test_one_that_finishes_its_jobs_is_shown_as_stopping(world: World) -> None:
    await world.job(await world.connection())
    run = HeldRun(EMPTY_PAGE)
    world.script(run)
    async with running(world, scheduler=False):
        await run.started.wait()
        world.engine.stop()

        await eventually(lambda: is_stopping(world))
        worker = await only_worker(world)
        run.let_go.set()

        assert worker.busy == 1


async def is_stopping(world: World) -> bool:
    return (await only_worker(world)).status == "stopping"


async def test_one_that_died_is_shown_as_dead_and_forgotten_in_time(world: World) -> None:
    await insert_worker(world)
    world.clock.advance(seconds=DEAD_AFTER.total_seconds())
    assert (await only_worker(world)).status == "alive"

    world.clock.advance(seconds=1)
    assert (await only_worker(world)).status == "dead"

    world.clock.advance(seconds=FORGOTTEN_AFTER.total_seconds())
    async with running(world):
        await eventually(lambda: has_only_living(world))


async def has_only_living(world: World) -> bool:
    return [worker.status for worker in await world.engine.workers.list()] == ["alive"]


async def test_claim_does_without_the_registry(world: World) -> None:
    await world.connection()
    world.script(EMPTY_PAGE)
    async with world.session() as session, session.transaction():
        await session.execute(world.qualified("LOCK TABLE {schema}.workers"))

        assert (await world.tick()).scheduled == 1
        assert await world.run_due() == 1


async def test_two_that_tidy_up_at_once_do_not_wait_for_each_other(
    world: World, maintenance: Maintenance
) -> None:
    await insert_worker(world)
    world.clock.advance(seconds=2 * FORGOTTEN_AFTER.total_seconds())
    async with world.session() as session, session.transaction():
        await session.execute(world.qualified("SELECT FROM {schema}.workers FOR UPDATE"))

        await asyncio.wait_for(maintenance.step(), timeout=1)

        assert len(await world.engine.workers.list()) == 1
    await maintenance.step()
    assert await world.engine.workers.list() == []


async def insert_worker(world: World, **columns: Any) -> None:
    """Insert the row of a process that is gone."""
    await world.sql(
        "INSERT INTO {schema}.workers VALUES (gen_random_uuid(), 'elsewhere', 7, '0.1.0',"
        " '{executor}', '{github}', 50, 3, false, $1, $2)",
        world.clock() - timedelta(hours=1),
        world.clock(),
    )
