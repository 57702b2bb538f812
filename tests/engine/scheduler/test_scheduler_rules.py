"""S1, S3, S5, S7 and S8 of the specification: ticks, slots, bootstraps, jitter, the guard."""

import asyncio
import random
from datetime import timedelta
from typing import Any

import pytest

from support.fakes import eventually
from support.world import Logged, World, at
from syncline import Settings, SyncResult
from syncline.errors import SettingsError

DAY = timedelta(days=1)


async def test_first_tick_runs_at_start(world: World, logged: Logged) -> None:
    """S1: the first tick runs at start, long before an interval has passed."""
    running = asyncio.create_task(world.engine.run(handle_signals=False, executor=False))

    await eventually(lambda: bool(logged("scheduler.tick")))

    world.engine.stop()
    assert await running


@pytest.mark.engine(scheduler={"tick_interval_seconds": 1})
async def test_next_tick_comes_an_interval_later(world: World, logged: Logged) -> None:
    """S1: a tick every `tick_interval_seconds`."""
    running = asyncio.create_task(world.engine.run(handle_signals=False, executor=False))

    await eventually(lambda: len(logged("scheduler.tick")) > 1)

    world.engine.stop()
    assert await running
    first, second = (
        tick["created"] - tick["milliseconds"] / 1000 for tick in logged("scheduler.tick")[:2]
    )
    assert second - first > 0.9


@pytest.mark.parametrize("seconds", [0, 0.5, 301])
def test_tick_interval_has_bounds(seconds: float) -> None:
    """S1: a tick interval is 1 to 300 seconds."""
    with pytest.raises(SettingsError, match=r"tick_interval_seconds.*1 and at most 300"):
        Settings(scheduler={"tick_interval_seconds": seconds})


@pytest.mark.engine(scheduler={"batch_size": 2})
async def test_tick_walks_all_that_are_due_in_batches(world: World) -> None:
    """S1: a tick walks all connections that are due, each batch in one transaction."""
    for _ in range(5):
        await world.connection(last_finished="10:00")

    report = await world.tick("12:00")

    assert report.scheduled == 5
    batches = "SELECT count(*) FROM {schema}.sync_jobs WHERE status = 'queued' GROUP BY xmin::text"
    assert sorted(row["count"] for row in await world.sql(batches)) == [1, 2, 2]


async def test_tick_does_not_wait_for_a_locked_connection(world: World) -> None:
    """S1: a tick skips what is locked, and finds it the next time."""
    locked, free = [await world.connection(last_finished="10:00") for _ in range(2)]
    lock = "SELECT FROM {schema}.connections WHERE id = $1 FOR UPDATE"

    async with world.session() as person, person.transaction():
        await world.sql(lock, locked.id, session=person)
        await world.tick("12:00")
        assert await world.jobs(locked, status="queued") == []
        assert await world.pending(free)

    await world.tick("12:01")
    assert (await world.pending(locked)).slot_at == at("12:00")


@pytest.mark.parametrize(
    ("last", "tick", "slot", "next_run", "next_due"),
    [
        ("12:00", "12:15", "12:15", "12:30", "12:15"),
        ("10:00", "10:20", "10:15", "10:30", "10:30"),
        ("10:00", "10:14", "10:15", "10:30", "10:15"),
        ("10:00", "11:07", "11:00", "11:15", "11:15"),
        ("10:00", "10:30", "10:30", "10:45", "10:30"),
    ],
    ids=["on time", "late", "early", "after downtime", "exactly on a later slot"],
)
async def test_slot_follows_the_formula(
    world: World,
    logged: Logged,
    last: str,
    tick: str,
    slot: str,
    next_run: str,
    next_due: str,
) -> None:
    """S3: the slot, `scheduled_at`, `next_run_at` and the trace of the examples."""
    connection = await world.connection(last_finished=last)

    await world.tick(tick, jitter_seconds=30)

    job = await world.pending(connection)
    assert job.slot_at == at(slot)
    assert job.scheduled_at == at(slot) + timedelta(seconds=30)
    assert await world.next_run(connection) == at(next_run)
    [plan] = logged("scheduler.job_scheduled")
    assert (plan["slot"], plan["next_due_at"]) == (at(slot).isoformat(), at(next_due).isoformat())


async def test_downtime_of_days_is_caught_up_with_one_job(world: World) -> None:
    """S3: however long the downtime, one job; afterwards the rhythm counts from its end."""
    connection = await world.connection(last_finished="10:00")
    world.script(SyncResult())

    reports = [await world.tick(at("10:07") + 9 * DAY) for _ in range(3)]
    ran = await world.run_due(at("10:20") + 9 * DAY)
    await world.tick(at("10:34") + 9 * DAY, jitter_seconds=0)

    assert ([report.scheduled for report in reports], ran) == ([1, 0, 0], 1)
    assert (await world.pending(connection)).scheduled_at == at("10:35") + 9 * DAY


@pytest.mark.parametrize(
    ("sync", "next_run"),
    [
        ({"first_activated_at": "2025-01-01T01:00:00Z"}, "01:15:30"),
        ({}, "00:15:30"),
        ({"first_activated_at": "2025-01-01T01:00:00"}, "00:15:30"),
    ],
    ids=["first_activated_at", "created_at", "created_at where the former has no zone"],
)
async def test_bootstrap_counts_from_the_activation(
    world: World, sync: dict[str, Any], next_run: str
) -> None:
    """S5: a first run comes now; its `next_run_at` is stored literally, even where it is past."""
    connection = await world.connection(created="00:00", sync=sync)

    await world.tick("12:00", jitter_seconds=30)

    assert (await world.pending(connection)).scheduled_at == at("12:00")
    assert await world.next_run(connection) == at(next_run) < at("12:00")


async def test_bootstrap_in_the_past_causes_no_hot_loop(world: World) -> None:
    """S5: a `next_run_at` in the past schedules nothing, before the run nor after it."""
    connection = await world.connection(created="00:00")
    world.script(SyncResult())

    before = [(await world.tick("12:00")).scheduled for _ in range(5)]
    await world.run_due()
    after = [(await world.tick(f"12:0{minute}")).scheduled for minute in range(5)]

    assert (before, after) == ([1, 0, 0, 0, 0], [0, 0, 0, 0, 0])
    assert len(await world.jobs(connection)) == 1
    await world.tick("12:14")
    assert (await world.pending(connection)).slot_at == at("12:15")


@pytest.mark.engine(scheduler={"jitter_pct_min": "0.07", "jitter_pct_max": "0.07"})
async def test_jitter_is_counted_in_decimals(world: World) -> None:
    """S7: 0.07 of 900 seconds is 63, which it is not in binary."""
    connection = await world.connection(last_finished="12:00")

    await world.tick("12:15")

    assert (await world.pending(connection)).scheduled_at == at("12:16:03")


@pytest.mark.engine(scheduler={"jitter_pct_min": "0.01", "jitter_pct_max": "0.015"})
async def test_jitter_without_a_whole_number_between_its_bounds(world: World) -> None:
    """S7: where no integer lies between 0.6 and 0.9 seconds, the jitter is the floor, 0."""
    connection = await world.connection(last_finished="12:00", sync={"interval_seconds": 60})

    await world.tick("12:01")

    assert (await world.pending(connection)).scheduled_at == at("12:01")


async def test_jitter_is_sampled_for_each_run_of_each_connection(world: World) -> None:
    """S7: every plan rolls anew, and `scheduled_at - slot` is `last_jitter_seconds` exactly."""
    connections = [await world.connection(last_finished="10:00") for _ in range(20)]
    rolls = random.Random(1)
    world.dice.random = rolls.random  # type: ignore[method-assign]  # dice that are not loaded

    await world.tick("11:07")

    jitters = []
    for connection in connections:
        job, sync = await world.pending(connection), await world.sync_metadata(connection)
        assert job.slot_at is not None
        jitters.append((job.scheduled_at - job.slot_at).total_seconds())
        assert sync["last_jitter_seconds"] == jitters[-1]
    assert len(set(jitters)) > 10
    assert all(0 <= jitter <= 180 and jitter.is_integer() for jitter in jitters)


@pytest.mark.parametrize(
    ("lowest", "highest"), [("-0.1", "0.2"), ("0.3", "0.2"), ("0", "1"), ("nan", "0.2")]
)
def test_jitter_bounds_are_checked_at_start(lowest: str, highest: str) -> None:
    """S7: `0 ≤ min ≤ max < 1`."""
    with pytest.raises(SettingsError, match="jitter_pct"):
        Settings(scheduler={"jitter_pct_min": lowest, "jitter_pct_max": highest})


async def test_schedulers_ticking_at_once_share_the_work(world: World) -> None:
    """S8: many schedulers and many connections: one job each, no error."""
    connections = [await world.connection(last_finished="10:00") for _ in range(30)]

    async with (
        world.another_engine(scheduler={"batch_size": 7}) as second,
        world.another_engine(scheduler={"batch_size": 4}) as third,
    ):
        reports = await asyncio.gather(
            *(one.tick("12:00") for one in (world, second, third, world, second, third))
        )

    assert sum(report.scheduled for report in reports) == 30
    for connection in connections:
        assert await world.pending(connection)
