"""S9 and E8 of the specification: an orderly end, and what it leaves behind."""

import asyncio
import signal
import threading
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from support.fakes import HeldRun, eventually
from support.world import Logged, World
from syncline import Connection, Connector, SyncResult

LEASED = "SELECT FROM {schema}.sync_jobs WHERE lease_token IS NOT NULL OR status = 'running'"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signal_ends_the_run(world: World, logged: Logged, number: signal.Signals) -> None:
    """S9, E8: on SIGTERM or SIGINT the loops end, which is logged; handlers are put back."""
    before = signal.getsignal(number)
    running = asyncio.create_task(world.engine.run())
    await eventually(partial(has_ticked, logged, 1))

    signal.raise_signal(number)
    clean = await running

    assert clean
    assert (len(logged("scheduler.stopped")), len(logged("executor.stopped"))) == (1, 1)
    assert signal.getsignal(number) == before


async def test_host_application_keeps_its_signal_handlers(world: World, logged: Logged) -> None:
    """E8: `run(handle_signals=False)` leaves them alone."""
    before = signal.getsignal(signal.SIGTERM)
    running = asyncio.create_task(world.engine.run(handle_signals=False))
    await eventually(partial(has_ticked, logged, 1))

    during = signal.getsignal(signal.SIGTERM)
    world.engine.stop()

    assert await running
    assert during == before


async def test_the_old_spelling_of_handle_signals_works_with_a_warning(world: World) -> None:
    before = signal.getsignal(signal.SIGTERM)
    world.engine.stop()

    with pytest.warns(DeprecationWarning, match="use handle_signals"):
        assert await world.engine.run(signals=False)

    assert signal.getsignal(signal.SIGTERM) == before


def has_stopped_claiming() -> bool:
    return all(task.get_name() != "syncline claim" for task in asyncio.all_tasks())


async def test_running_jobs_may_end_within_the_grace(world: World) -> None:
    """E8: stop claiming, and let running jobs end."""
    job_id = await world.job(await world.connection())
    run = HeldRun(SyncResult(next_cursor=1, has_more=True))
    world.script(run)
    running = asyncio.create_task(world.engine.run(handle_signals=False, scheduler=False))
    await run.started.wait()

    world.engine.stop()
    await eventually(has_stopped_claiming)  # a claim under way may still take what comes
    late = await world.job(await world.connection())
    run.let_go.set()
    clean = await running

    assert (clean, run.was_stopped) == (True, False)
    assert (await world.get_job(job_id)).status == "succeeded"
    assert (await world.get_job(late)).status == "queued"
    assert len(world.connector.calls) == 1


@pytest.mark.engine(executor={"shutdown_grace_seconds": 0})
async def test_released_job_is_as_it_was(world: World) -> None:
    """E8: `queued`, attempts unchanged, eligible at once, and no row stays running."""
    job_ids = [await world.job(await world.connection(), attempts=n, priority=-n) for n in (0, 3)]
    runs = [HeldRun(SyncResult()) for _ in job_ids]
    world.script(*runs)
    running = asyncio.create_task(world.engine.run(handle_signals=False, scheduler=False))
    await asyncio.gather(*(run.started.wait() for run in runs))

    world.engine.stop()
    assert await running

    jobs = [await world.get_job(job_id) for job_id in job_ids]
    assert [(job.status, job.attempts, job.retry_after) for job in jobs] == [
        ("queued", 0, None),
        ("queued", 3, None),
    ]
    assert await world.sql(LEASED) == []
    assert all(run.was_stopped for run in runs)
    world.script(SyncResult(), SyncResult())
    assert await world.run_due() == 2


@pytest.mark.engine(executor={"shutdown_grace_seconds": 0})
async def test_release_of_a_paused_connections_job_cancels_it(world: World) -> None:
    """S11, E8: what would be queued again is cancelled where the connection has left."""
    connection = await world.connection()
    job_id = await world.job(connection)
    run = HeldRun(SyncResult())
    world.script(run)
    running = asyncio.create_task(world.engine.run(handle_signals=False, scheduler=False))
    await run.started.wait()

    await world.engine.connections.pause(connection.id)
    world.engine.stop()
    assert await running

    assert (await world.get_job(job_id)).status == "cancelled"


class Deaf(Connector):
    """Blocks its thread until the test is over."""

    provider = "deaf"

    def __init__(self) -> None:
        self.entered, self.over = threading.Event(), threading.Event()

    def sync(self, connection: Connection, cursor: Any) -> SyncResult:
        self.entered.set()
        self.over.wait(60)
        return SyncResult(next_cursor="too late")


class Stubborn(Connector):
    """Ignores its cancellation until the test is over."""

    provider = "stubborn"

    def __init__(self) -> None:
        self.entered, self.over = asyncio.Event(), asyncio.Event()

    async def sync(self, connection: Connection, cursor: Any) -> SyncResult:
        self.entered.set()
        while not self.over.is_set():
            with suppress(asyncio.CancelledError):
                await self.over.wait()
        return SyncResult(next_cursor="too late")


async def test_connectors_that_do_not_stop_never_delay_an_exit(world: World) -> None:
    """E7, E8: a thread or a coroutine that does not stop is left behind, its job released."""
    connectors = (Deaf(), Stubborn())
    connections = [await world.connection(provider=one.provider) for one in connectors]
    job_ids = [await world.job(connection) for connection in connections]
    try:
        async with (
            asyncio.timeout(20),
            world.another_engine(connectors, executor={"shutdown_grace_seconds": 0}) as worker,
        ):
            running = asyncio.create_task(worker.engine.run(handle_signals=False, scheduler=False))
            await eventually(lambda: all(one.entered.is_set() for one in connectors))
            worker.engine.stop()
            assert await running

        for job_id in job_ids:
            job = await world.get_job(job_id)
            assert (job.status, job.attempts) == ("queued", 0)
        assert await world.sql(LEASED) == []
    finally:
        for connector in connectors:
            connector.over.set()
    for connection in connections:
        assert "cursor" not in await world.sync_metadata(connection)


async def test_engine_that_is_left_releases_what_it_runs(world: World) -> None:
    """E8: leaving `async with Engine` in mid-run is an orderly end too."""
    job_id = await world.job(await world.connection(), attempts=1)
    run = HeldRun(SyncResult())
    world.script(run)

    async with world.another_engine() as worker:
        running = asyncio.create_task(worker.run_due())
        await run.started.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    job = await world.get_job(job_id)
    assert (job.status, job.attempts, run.was_stopped) == ("queued", 1, True)


async def test_engine_can_run_again(world: World, logged: Logged) -> None:
    """S9: an engine that was stopped can be started again."""
    for ticks in (1, 2):
        running = asyncio.create_task(world.engine.run(handle_signals=False))
        await eventually(partial(has_ticked, logged, ticks))
        world.engine.stop()
        assert await running

    assert len(logged("scheduler.stopped")) == 2


def has_ticked(logged: Logged, times: int) -> bool:
    return len(logged("scheduler.tick")) >= times
