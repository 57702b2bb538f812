"""E2 at the provider: no two calls of one connection at once, unless a process stood still."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import pytest
from faults.proxy import Link

from support.fakes import HeldRun, eventually
from support.runs import begin, make_runs
from support.world import World, in_short
from syncline import Connection, Connector, Engine, Settings, SyncResult
from syncline.engine.worker.runs import safe_seconds
from syncline.engine.worker.slots import Slots

# A settle that comes too early takes a few milliseconds; nothing else happens to wait for.
LONG_ENOUGH_TO_SETTLE = 0.1


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


@pytest.mark.engine(executor=in_short(max_run_seconds=0.1))
async def test_a_run_that_timed_out_keeps_its_job_until_its_connector_has_stopped(
    world: World,
) -> None:
    job_id = await world.job(await world.connection())
    run = Reluctant()
    world.script(run)
    working = asyncio.create_task(world.run_due())
    await run.was_told.wait()
    await asyncio.sleep(LONG_ENOUGH_TO_SETTLE)

    assert (await world.get_job(job_id)).status == "running"

    run.let_go.set()
    await working
    job = await world.get_job(job_id)
    assert (job.status, job.error["class"]) == ("queued", "Timeout")


@pytest.mark.engine(executor={"shutdown_grace_seconds": 0})
async def test_a_shutdown_releases_a_job_once_its_connector_has_stopped(world: World) -> None:
    job_id = await world.job(await world.connection())
    run = Reluctant()
    world.script(run)
    working = asyncio.create_task(world.engine.run(handle_signals=False, scheduler=False))
    await run.started.wait()
    world.engine.stop()
    await run.was_told.wait()
    await asyncio.sleep(LONG_ENOUGH_TO_SETTLE)

    assert (await world.get_job(job_id)).status == "running"

    run.let_go.set()
    await working
    assert (await world.get_job(job_id)).status == "queued"


class InThread(Connector):
    """Works in a thread, which nobody can stop, for so many seconds."""

    provider = "github"

    def __init__(self, seconds: float) -> None:
        self.has_returned = False
        self._seconds = seconds

    def sync(self, connection: Connection, cursor: Any) -> SyncResult:
        time.sleep(self._seconds)
        self.has_returned = True
        return SyncResult()


async def test_a_thread_that_timed_out_keeps_its_job_until_it_returns(world: World) -> None:
    """It is waited for as long as it was allowed to run; beyond that its job goes on."""
    connector = InThread(seconds=0.85)  # told to stop after 0.5, and given up after 1
    job_id = await world.job(await world.connection())

    async with world.another_engine([connector], executor={"max_run_seconds": 0.5}) as worker:
        working = asyncio.create_task(worker.run_due())
        await eventually(lambda: is_running(world, job_id))
        await eventually(lambda: is_queued(world, job_id))
        assert connector.has_returned
        await working

    assert (await world.get_job(job_id)).error["class"] == "Timeout"


async def is_running(world: World, job_id: UUID) -> bool:
    return (await world.get_job(job_id)).status == "running"


async def is_queued(world: World, job_id: UUID) -> bool:
    return (await world.get_job(job_id)).status == "queued"


async def test_a_job_that_was_lost_and_claimed_again_waits_for_its_first_run() -> None:
    runs, slots = make_runs(), Slots(["github"], 2)
    lost = begin(runs, slots, lapses=0)
    runs.lose([lost.claim.id])
    again = begin(runs, slots, lapses=1)
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
async def cut_off_worker(
    world: World, connector: Connector, lease_seconds: float
) -> AsyncIterator[tuple[Engine, Link]]:
    """Lend a worker by the server's own clock, and its way to Postgres."""
    parts = urlsplit(world.url)
    query = parse_qs(parts.query)
    link = Link(f"{query['host'][0]}/.s.PGSQL.{query['port'][0]}")
    await link.open()
    settings = Settings(
        database_url=link.url.format(database=parts.path.removeprefix("/")),
        schema=world.schema,
        executor=in_short(lease_seconds=lease_seconds, concurrency=1, shutdown_grace_seconds=0.1),
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
    async with cut_off_worker(world, connector, lease_seconds=2.4) as (engine, link):
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

    async def is_old() -> bool:
        return bool(
            await world.sql(
                "SELECT FROM {schema}.sync_jobs"
                " WHERE clock_timestamp() - started_at > interval '1.1 seconds'"
            )
        )

    async with cut_off_worker(world, connector, lease_seconds=1.2) as (engine, link):
        await engine.run_due()  # which opens a session, and plans the claim
        job_id = await world.job(connection)
        link.delay_seconds = 0.03  # so that the answer is caught on its way
        working = asyncio.create_task(engine.run_due())
        await eventually(lambda: is_running(world, job_id))
        link.silence()
        await eventually(is_old)
        await link.open()
        await working

    assert connector.seconds_since_claim
    assert all(since < 1 for since in connector.seconds_since_claim)


async def test_the_held_run_of_a_worker_that_goes_on_is_not_stopped(world: World) -> None:
    """The other way round: while its lease is renewed, a run goes on past it."""
    connection = await world.connection()
    await world.job(connection)
    run = HeldRun(SyncResult(next_cursor=1))
    world.script(run)
    async with world.another_engine(executor={"lease_seconds": 1.2}) as worker:
        working = asyncio.create_task(worker.run_due())
        await run.started.wait()
        for _ in range(4):  # a third of the lease apart
            world.clock.advance(seconds=1)
            await eventually(lambda: is_renewed(worker))
        run.let_go.set()
        await working

    assert not run.was_stopped
    assert (await world.sync_metadata(connection))["cursor"] == 1


async def is_renewed(worker: World) -> bool:
    [row] = await worker.sql("SELECT lease_expires_at AS at FROM {schema}.sync_jobs")
    return bool(row["at"] == worker.clock() + worker.settings.executor.lease)
