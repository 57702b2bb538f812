"""E6 and the crash rules of E7: leases, their lapse, their loss."""

import asyncio
from datetime import timedelta

import pytest

from support.fakes import HeldRun, eventually
from support.world import World, at, in_short
from syncline import Connection, Signal, SyncResult, Transient
from syncline.model import Job

LEASE = "SELECT lease_token, lease_expires_at FROM {schema}.sync_jobs"
LAPSES = "SELECT lapses FROM {schema}.sync_jobs"
NEWS = Signal("opened", at("11:00"), {})
SHORT_LEASE = in_short(lease_seconds=1.2)


async def reap(world: World) -> None:
    """Reap as a worker does that has no connector, and so claims nothing."""
    async with world.another_engine(connectors=()) as reaper:
        await reaper.run_due()


async def lapse(world: World, connection: Connection, **columns: int) -> Job:
    """Return the job of a worker that died, once it was reaped."""
    job_id = await world.running_job(connection, **columns)
    world.clock.advance(world.settings.executor.lease_seconds)
    await reap(world)
    return await world.get_job(job_id)


async def test_claim_writes_a_fresh_lease(world: World) -> None:
    """E6: a token of its own, and an expiry a lease ahead."""
    for _ in range(2):
        await world.job(await world.connection())

    async with world.during_run(), world.during_run():
        leases = await world.sql(LEASE)

    assert {row["lease_expires_at"] for row in leases} == {at("12:00:30")}
    assert len({row["lease_token"] for row in leases}) == 2


async def test_lease_holds_until_it_expires(world: World) -> None:
    """E6: a job whose lease has not lapsed is left to its worker."""
    job_id = await world.running_job(await world.connection())
    world.clock.advance(29.9)

    await reap(world)

    assert (await world.get_job(job_id)).status == "running"


async def test_first_lapse_is_eligible_at_once(world: World) -> None:
    """E6: queued again, eligible at once, the attempt counted, `error` says so."""
    job = await lapse(world, await world.connection(), attempts=4)

    assert (job.status, job.attempts, job.retry_after) == ("queued", 5, None)
    assert (job.error["class"], job.error["attempt"]) == ("LeaseLapsed", 5)
    assert "lease lapsed" in job.error["message"]
    assert job.started_at == at("12:00")


async def test_next_lapse_in_a_row_waits(world: World) -> None:
    """E6: from its second lapse in a row a job waits by E5."""
    world.dice.value = 0.0

    job = await lapse(world, await world.connection(), lapses=1, attempts=2)

    assert (job.status, job.attempts) == ("queued", 3)
    assert job.retry_after == world.clock() + timedelta(seconds=20)


async def test_fifth_lapse_in_a_row_ends_the_job(world: World) -> None:
    """E7: what kills workers does not go round for ever: `failed`, and the connection `error`."""
    connection = await world.connection()

    job = await lapse(world, connection, lapses=4, attempts=4)

    assert (job.status, job.finished_at, job.attempts) == ("failed", world.clock(), 5)
    stopped = await world.engine.connections.get(connection.id)
    assert stopped.status == "error"
    assert "lease lapsed" in stopped.status_reason["why"]


async def test_five_lapses_from_the_first_to_the_last(world: World) -> None:
    """E7: claimed and lost five times, by five workers."""
    connection = await world.connection()
    job_id = await world.job(connection)
    statuses = []
    async with world.another_engine(connectors=()) as reaper:
        for _ in range(5):
            async with world.during_run() as run:
                world.clock.advance(31)
                await reaper.run_due()
                await run.finish()
            statuses.append((await world.get_job(job_id)).status)
            world.clock.advance(3600)

    assert statuses == ["queued"] * 4 + ["failed"]
    assert (await world.engine.connections.get(connection.id)).status == "error"


@pytest.mark.parametrize("ending", [Transient("down"), SyncResult()], ids=["failure", "success"])
async def test_attempt_that_ends_breaks_the_row(
    world: World, ending: SyncResult | Exception
) -> None:
    """E6: lapses count in a row; an attempt that ended, however it did, ends the row."""
    await world.job(await world.connection(), lapses=3)

    await world.run_one(ending)

    [row] = await world.sql(LAPSES)
    assert row["lapses"] == 0


async def test_lapsed_job_of_a_paused_connection_is_cancelled(world: World) -> None:
    """S11, E6: what would be queued again is cancelled where the connection has left."""
    connection = await world.connection(status="paused")

    job = await lapse(world, connection)

    assert (job.status, job.finished_at) == ("cancelled", world.clock())


async def test_expired_lease_that_nobody_reaped_may_settle(world: World) -> None:
    """E6: gone means reaped or cancelled; expiry alone is not enough."""
    connection = await world.connection()
    job_id = await world.job(connection)

    async with world.during_run(SyncResult([NEWS])):
        world.clock.advance(hours=3)

    assert (await world.get_job(job_id)).status == "succeeded"
    assert len(await world.signals(connection)) == 1


@pytest.mark.engine(executor=SHORT_LEASE)
async def test_lease_is_renewed_while_the_job_runs(world: World) -> None:
    """E6: also one that has expired, as long as nobody reaped it."""
    await world.job(await world.connection())

    async def is_renewed() -> bool:
        [row] = await world.sql(LEASE)
        return bool(row["lease_expires_at"] == at("13:00") + SHORT_LEASE.lease)

    async with world.during_run():
        world.clock.set(at("13:00"))
        await eventually(is_renewed)


@pytest.mark.engine(executor=SHORT_LEASE)
@pytest.mark.parametrize("loss", ["reaped", "cancelled", "deleted"])
async def test_worker_that_lost_its_lease_stops_its_connector(world: World, loss: str) -> None:
    """E6, E10: at its next renewal, a third of the lease later at most, and settles nothing."""
    connection = await world.connection(sync={"cursor": "old"})
    job_id = await world.job(connection)
    run = HeldRun(SyncResult([NEWS], next_cursor="new"))
    world.script(run)

    running = asyncio.create_task(world.run_due())
    await run.started.wait()
    if loss == "reaped":
        world.clock.advance(4)
        await reap(world)
        await world.engine.connections.pause(connection.id)
    elif loss == "cancelled":
        await world.engine.jobs.cancel(job_id)
    else:
        await world.engine.connections.delete(connection.id)
    async with asyncio.timeout(10):
        await running

    assert run.was_stopped
    assert await world.signals(connection) == []
    if loss != "deleted":
        assert (await world.get_job(job_id)).status == "cancelled"
        assert (await world.sync_metadata(connection))["cursor"] == "old"


@pytest.mark.parametrize("ending", [SyncResult([NEWS], next_cursor="new"), Transient("down")])
async def test_run_of_a_cancelled_job_changes_nothing(
    world: World, ending: SyncResult | Exception
) -> None:
    """E6: a settle or a failure that presents a lease that has gone touches no row."""
    connection = await world.connection()
    job_id = await world.job(connection)

    async with world.during_run(ending):
        cancelled = await world.engine.jobs.cancel(job_id)

    assert await world.get_job(job_id) == cancelled
    assert await world.signals(connection) == []
    assert "cursor" not in await world.sync_metadata(connection)


async def test_running_row_without_a_lease_is_reaped_a_lease_after_its_start(
    world: World,
) -> None:
    """E6: a row set to running by hand does not block its connection for ever."""
    connection = await world.connection()
    job_id = await world.job(connection, status="running", started_at=at("12:00"))
    await reap(world)
    assert (await world.get_job(job_id)).status == "running"

    world.clock.advance(30)
    await reap(world)

    assert (await world.get_job(job_id)).status == "queued"


async def test_process_runs_one_poison_job_at_a_time(world: World) -> None:
    """E7: jobs whose lease lapsed twice or more in a row run one at a time in a process."""
    poison_jobs = [await world.job(await world.connection(), lapses=2 + n % 2) for n in range(3)]
    others = [await world.job(await world.connection(), lapses=n % 2) for n in range(2)]
    runs = [HeldRun(SyncResult()) for _ in range(5)]
    world.script(*runs)

    running = asyncio.create_task(world.run_due())
    await asyncio.gather(*(run.started.wait() for run in runs[:3]))
    statuses = [[(await world.get_job(id_)).status for id_ in ids] for ids in (poison_jobs, others)]
    for run in runs:
        run.let_go.set()

    assert await running == 5
    assert sorted(statuses[0]) == ["queued", "queued", "running"]
    assert statuses[1] == ["running", "running"]


async def test_poison_jobs_run_side_by_side_in_different_processes(world: World) -> None:
    """E7: the limit is a process's own."""
    for _ in range(2):
        await world.job(await world.connection(), lapses=2)

    async with world.during_run(), world.during_run():
        rows = await world.sql("SELECT FROM {schema}.sync_jobs WHERE status = 'running'")

    assert len(rows) == 2
