"""T1 and T2 of the specification: whose clock counts."""

import asyncio
import random
import time
from datetime import datetime, timedelta, timezone
from itertools import pairwise

import pytest

from support.fakes import eventually
from support.world import World, at, in_short
from syncline import Engine, RateLimited, Settings, Signal, SyncResult
from syncline.testing import ScriptedConnector

REAL_TIME = timedelta(minutes=5)


@pytest.mark.parametrize("hours", [-7, 7])
async def test_hosts_whose_clocks_are_wrong_behave_alike(
    world: World, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    """T1: production decisions use the database's clock alone."""
    connection = await world.connection()
    began = await world.server_time()
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + hours * 3600)
    monkeypatch.setattr(time, "time_ns", lambda: int((real() + hours * 3600) * 1e9))
    connectors = [ScriptedConnector("github", [SyncResult()])]
    settings = Settings(database_url=world.url)

    async with Engine(settings, connectors, rng=random.Random(1)) as engine:
        await engine.tick()
        assert await engine.run_due() == 1

    [job] = await world.jobs(connection)
    ended = await world.server_time()
    assert job.started_at is not None
    assert job.finished_at is not None
    assert began <= job.scheduled_at <= job.started_at <= job.finished_at <= ended


async def test_stored_instants_come_from_the_injected_clock(world: World) -> None:
    """T2: whatever is stored, or compared with what is stored, is the engine's time."""
    connection = await world.engine.connections.create(
        tenant_id="acme", provider_slug="github", external_id="a-1"
    )
    await world.tick()
    await world.run_one()

    [job] = await world.jobs(connection)
    assert {job.scheduled_at, job.started_at, job.finished_at} == {at("12:00")}
    assert (await world.sync_metadata(connection))["first_activated_at"] == "2025-01-01T12:00:00Z"
    assert connection.created_at == at("12:00")


async def test_server_stamps_what_is_its_own(world: World) -> None:
    """`created_at` and `updated_at` of jobs, and `received_at`, are the server's own time."""
    connection = await world.connection()
    await world.tick()
    await world.run_one(SyncResult([Signal("k", at("11:00"), {})]))

    [job], [signal] = await world.jobs(connection), await world.signals(connection)
    now = await world.server_time()
    for stamped in (job.created_at, job.updated_at, signal.received_at):
        assert abs(now - stamped) < REAL_TIME


async def test_virtual_day_passes_in_seconds(world: World) -> None:
    """T2: twenty-four runs an hour apart, and no real waiting."""
    connection = await world.connection(created="00:00", sync={"interval_seconds": 3600})
    world.script(*[SyncResult()] * 24)
    world.dice.value = 0.0
    world.clock.set(at("00:00"))
    while world.clock() < at("24:00"):
        await world.tick()
        await world.run_due()
        world.clock.advance(hours=1)

    finished = [job.finished_at for job in await world.jobs(connection)]
    assert finished == [at("00:00") + n * timedelta(hours=1) for n in range(24)]


@pytest.mark.engine(executor=in_short(lease_seconds=1.2))
async def test_deadlines_inside_a_process_do_not_follow_the_clock(world: World) -> None:
    """T2: `max_run_seconds` and a worker's own notice of its lease count real time."""
    job_id = await world.job(await world.connection())

    async def is_renewed() -> bool:
        [row] = await world.sql("SELECT lease_expires_at FROM {schema}.sync_jobs")
        return bool(row["lease_expires_at"] == world.clock() + world.settings.executor.lease)

    async with world.during_run() as run, asyncio.timeout(10):
        world.clock.advance(days=2)
        await eventually(is_renewed)
        assert not run.was_stopped

    assert (await world.get_job(job_id)).status == "succeeded"


async def test_clock_without_a_zone_is_refused(world: World) -> None:
    """T2: an injected clock returns aware times, or nothing is done."""
    settings = Settings(database_url=world.url)

    async with Engine(settings, clock=lambda: datetime(2025, 1, 1)) as engine:
        with pytest.raises(ValueError, match="zone"):
            await engine.tick()


async def test_clock_of_another_zone_is_read_as_utc(world: World) -> None:
    """T2: times are UTC, whatever zone a clock speaks in."""
    connection = await world.connection(last_finished="12:00")
    elsewhere = at("12:15").astimezone(timezone(timedelta(hours=2)))

    async with Engine(Settings(database_url=world.url), clock=lambda: elsewhere) as engine:
        await engine.tick()

    assert (await world.pending(connection)).slot_at == at("12:15")
    assert (await world.sync_metadata(connection))["next_run_at"] == "2025-01-01T12:30:00Z"


async def test_a_check_that_was_put_off_for_too_long_is_brought_back(world: World) -> None:
    """T1: also where no scheduler is left that ticked while the clock stood ahead."""
    connection = await world.connection(last_finished="11:50")
    await world.sql("UPDATE {schema}.connections SET look_at = $1", at("12:00") + timedelta(days=9))

    await world.tick("12:06", jitter_seconds=0)

    assert (await world.pending(connection)).slot_at == at("12:05")


@pytest.mark.parametrize(
    ("ahead", "runs_ahead"),
    [(timedelta(hours=5), True), (timedelta(days=1), False)],
    ids=["run hours ahead", "queued a day ahead"],
)
async def test_a_clock_that_stood_ahead_for_a_moment_stalls_nobody(
    world: World, ahead: timedelta, runs_ahead: bool
) -> None:
    """T1: what was stored in the future is brought back by the next tick."""
    await world.connection(last_finished="11:50")
    await world.tick("12:00")
    world.clock.set(at("12:00") + ahead)
    await world.tick(jitter_seconds=120)
    if runs_ahead:
        world.script(SyncResult())
        assert await world.run_due(at("12:10") + ahead) == 1
        await world.tick()

    starts = []
    for minute in range(5, 61, 5):
        await world.tick(at("12:00") + timedelta(minutes=minute), jitter_seconds=0)
        world.script(SyncResult())
        if await world.run_due():
            starts.append(minute)
        world.connector.script.clear()

    assert 3 <= len(starts) <= 6
    assert await world.engine.verify() == []


@pytest.mark.parametrize("interval", [60, 90, 900])
async def test_runs_are_one_interval_apart_after_the_clock_stood_ahead(
    world: World, interval: int
) -> None:
    """T1: also where a tick plans the next run as soon as the last one has ended."""
    connection = await world.connection(last_finished="11:50", sync={"interval_seconds": interval})
    world.clock.set(at("12:00") + timedelta(days=1))
    await world.tick(jitter_seconds=0)
    world.script(SyncResult())
    assert await world.run_due() == 1

    starts = []
    for seconds in range(0, 3600, 15):
        await world.tick(at("12:00") + timedelta(seconds=seconds), jitter_seconds=0)
        world.script(SyncResult())
        if await world.run_due():
            starts.append(seconds)
        world.connector.script.clear()

    gaps = {later - earlier for earlier, later in pairwise(starts)}
    assert gaps <= {interval, interval + 15}, gaps
    assert starts[0] == 0
    assert 3600 // (interval + 15) <= len(starts), connection


async def ahead_and_back(world: World) -> None:
    """Let the clock stand a day ahead for a moment, in which a scheduler ticks."""
    await world.tick("12:00")
    world.clock.set(at("12:00") + timedelta(days=1))
    await world.tick()


async def test_a_wait_that_began_while_the_clock_stood_ahead_ends(world: World) -> None:
    """T1: but for a pause that the provider asked for, which may be that long."""
    failing, limited = [await world.connection(last_finished="11:40") for _ in range(2)]
    await world.tick("11:55", jitter_seconds=0)
    world.script(TimeoutError(), RateLimited("slow down", retry_after_seconds=3600))
    await ahead_and_back(world)
    world.dice.value = 0
    assert await world.run_due() == 2

    await world.tick("12:01")

    pending = [await world.pending(connection) for connection in (failing, limited)]
    waits = {job.error["class"]: job.retry_after for job in pending}
    assert waits == {"Timeout": at("12:01"), "RateLimited": at("13:00") + timedelta(days=1)}


async def test_a_lease_that_was_taken_while_the_clock_stood_ahead_lapses(world: World) -> None:
    """T1, E6: also one of a run that was cancelled."""
    dead, cancelled = [await world.connection(last_finished="11:59") for _ in range(2)]
    await ahead_and_back(world)
    await world.sql("DELETE FROM {schema}.sync_jobs WHERE status = 'queued'")
    await world.running_job(dead)
    await world.engine.jobs.cancel(await world.running_job(cancelled))
    await world.engine.trigger(cancelled.id)
    await world.sql("UPDATE {schema}.sync_jobs SET scheduled_at = $1", at("12:00"))

    await world.tick("12:01")
    world.script(*[SyncResult()] * 2)
    assert await world.run_due("12:01:29") == 0
    assert await world.run_due("12:01:30") == 2
