"""E2 at the provider: no two calls of one connection at once, unless a process stood still."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from faults.proxy import Link

from engine.worker.test_runs import begin, make_runs
from support.fakes import HeldRun, eventually
from support.world import World
from syncline import Connection, Connector, Engine, Settings, SyncResult
from syncline.engine.worker.runs import safe_seconds


class Reluctant:
    """A line of a script that takes its time to stop."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.was_told = asyncio.Event()
        self.let_go = asyncio.Event()

    async def __call__(self, connection: Connection, cursor: Any) -> SyncResult:
        self.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.was_told.set()
            await self.let_go.wait()
        raise AssertionError("unreachable")


@pytest.mark.engine(executor={"max_run_seconds": 1})
async def test_a_run_that_timed_out_keeps_its_job_until_its_connector_has_stopped(
    world: World,
) -> None:
    job_id = await world.job(await world.connection())
    run = Reluctant()
    world.script(run)
    working = asyncio.create_task(world.run_due())
    await run.was_told.wait()
    await asyncio.sleep(0.1)

    assert (await world.get_job(job_id)).status == "running"

    run.let_go.set()
    await working
    job = await world.get_job(job_id)
    assert (job.status, job.error["class"]) == ("queued", "Timeout")


@pytest.mark.engine(executor={"shutdown_grace_seconds": 0.1})
async def test_a_shutdown_releases_a_job_once_its_connector_has_stopped(world: World) -> None:
    job_id = await world.job(await world.connection())
    run = Reluctant()
    world.script(run)
    working = asyncio.create_task(world.engine.run(handle_signals=False, scheduler=False))
    await run.started.wait()
    world.engine.stop()
    await run.was_told.wait()
    await asyncio.sleep(0.1)

    assert (await world.get_job(job_id)).status == "running"

    run.let_go.set()
    await working
    assert (await world.get_job(job_id)).status == "queued"


class InThread(Connector):
    """Sits in a thread, which nobody can stop, until it is let go."""

    provider = "github"

    def __init__(self) -> None:
        self.let_go = threading.Event()

    def sync(self, connection: Connection, cursor: Any) -> SyncResult:
        self.let_go.wait(30)
        return SyncResult()


async def test_a_thread_that_timed_out_keeps_its_job_until_it_returns(world: World) -> None:
    """It is waited for as long as it was allowed to run; beyond that its job goes on."""
    connector = InThread()
    job_id = await world.job(await world.connection())
    async with world.another_engine([connector], executor={"max_run_seconds": 1}) as worker:
        working = asyncio.create_task(worker.run_due())
        await asyncio.sleep(1.4)
        status = (await world.get_job(job_id)).status
        connector.let_go.set()
        await working

    assert status == "running"
    assert (await world.get_job(job_id)).error["class"] == "Timeout"


async def test_a_job_that_was_lost_and_claimed_again_waits_for_its_first_run() -> None:
    runs = make_runs()
    lost = begin(runs, lapses=0)
    runs.lose([lost.claim.id])
    again = begin(runs, lapses=1)
    assert again.predecessor is lost

    waiting = asyncio.create_task(runs.wait_until_stopped(lost))
    await asyncio.sleep(0)
    assert not waiting.done()
    runs.leave(lost)
    await waiting


async def test_a_process_that_claims_a_job_again_calls_nobody_while_its_first_run_goes_on(
    world: World,
) -> None:
    await world.job(await world.connection())
    first, has_stopped = Reluctant(), []

    async def second(_: Connection, __: Any) -> SyncResult:
        has_stopped.append(first.let_go.is_set())
        return SyncResult()

    world.script(first, second)
    working = asyncio.create_task(world.engine.run_due())
    await first.started.wait()
    world.clock.advance(seconds=31)
    await world.engine._worker.reaper.reap()
    assert await world.engine._worker.executor.claim_and_start() == 1
    await eventually(lambda: first.was_told.is_set() or bool(has_stopped))
    first.let_go.set()
    await working

    assert has_stopped == [True]


@pytest.mark.parametrize(("lease_seconds", "safe"), [(3, 2.5), (12, 10), (30, 28), (3600, 3598)])
def test_a_run_stops_before_its_lease_ends(lease_seconds: float, safe: float) -> None:
    """By its own clock, when it cannot renew it: what is left is for the connector to stop in."""
    assert safe_seconds(lease_seconds) == pytest.approx(safe)


@asynccontextmanager
async def cut_off_worker(world: World, connector: Connector) -> AsyncIterator[tuple[Engine, Link]]:
    """Lend a worker by the server's own clock, and its way to Postgres."""
    parts = urlsplit(world.url)
    query = parse_qs(parts.query)
    link = Link(f"{query['host'][0]}/.s.PGSQL.{query['port'][0]}")
    await link.open()
    settings = Settings(
        database_url=link.url.format(database=parts.path.removeprefix("/")),
        schema=world.schema,
        executor={"lease_seconds": 3, "concurrency": 1, "shutdown_grace_seconds": 0.1},
    )
    try:
        async with Engine(settings, connectors=[connector]) as engine:
            yield engine, link
    finally:
        link.close()


class Stopped(Connector):
    """Notes whether its lease still held when it was told to stop."""

    provider = "github"

    def __init__(self, world: World) -> None:
        self._world = world
        self.started = asyncio.Event()
        self.lease_held: list[bool] = []

    async def sync(self, connection: Connection, cursor: Any) -> SyncResult:
        self.started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            held = "SELECT lease_expires_at > clock_timestamp() AS held FROM {schema}.sync_jobs"
            self.lease_held += [row["held"] for row in await self._world.sql(held)]
            raise
        return SyncResult()


async def test_a_worker_cut_off_from_postgres_hangs_up_before_its_lease_ends(world: World) -> None:
    connector = Stopped(world)
    await world.job(await world.connection())
    async with cut_off_worker(world, connector) as (engine, link):
        working = asyncio.create_task(engine.run(handle_signals=False, scheduler=False))
        await connector.started.wait()
        link.silence()
        await eventually(lambda: bool(connector.lease_held))
        await link.open()
        engine.stop()
        await working

    assert connector.lease_held[0]


class Called(Connector):
    """Notes when the job that it is called for was claimed, by the server's clock."""

    provider = "github"

    def __init__(self, world: World) -> None:
        self._world = world
        self.seconds_since_claim: list[float] = []

    async def sync(self, connection: Connection, cursor: Any) -> SyncResult:
        since = (
            "SELECT date_part('epoch', clock_timestamp() - started_at) AS since"
            " FROM {schema}.sync_jobs WHERE status = 'running'"
        )
        self.seconds_since_claim += [row["since"] for row in await self._world.sql(since)]
        return SyncResult()


async def test_a_claim_whose_answer_comes_too_late_calls_nobody(world: World) -> None:
    """The lease may be another's by then; the job is released, and claimed anew."""
    connector = Called(world)
    connection = await world.connection()

    async def is_claimed() -> bool:
        return (await world.get_job(job_id)).status == "running"

    async with cut_off_worker(world, connector) as (engine, link):
        await engine.run_due()  # which opens a session, and plans the claim
        job_id = await world.job(connection)
        link.delay_seconds = 0.03  # so that the answer is caught on its way
        working = asyncio.create_task(engine.run_due())
        await eventually(is_claimed)
        link.silence()
        await asyncio.sleep(2.6)
        await link.open()
        await working

    assert connector.seconds_since_claim
    assert all(since < 2 for since in connector.seconds_since_claim)


async def test_the_held_run_of_a_worker_that_goes_on_is_not_stopped(world: World) -> None:
    """The other way round: while its lease is renewed, a run goes on past it."""
    connection = await world.connection()
    await world.job(connection)
    run = HeldRun(SyncResult(next_cursor=1))
    world.script(run)
    async with world.another_engine(executor={"lease_seconds": 3}) as worker:
        working = asyncio.create_task(worker.run_due())
        await run.started.wait()
        await asyncio.sleep(3.2)
        run.let_go.set()
        await working

    assert not run.was_stopped
    assert (await world.sync_metadata(connection))["cursor"] == 1
