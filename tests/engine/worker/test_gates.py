"""Providers that are paused, limited or down: who may be called, and what it costs (P3 to P6)."""

import asyncio
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from support.world import World, at
from syncline import RateLimited, SyncResult, Transient, Unauthorized
from syncline.store.queue import gates

DOWN = Transient("502 Bad Gateway")


async def test_nothing_of_a_paused_provider_is_claimed(world: World) -> None:
    job = await world.job(await world.connection())
    await world.engine.gates.pause("github", because="maintenance")
    world.script(SyncResult())

    await world.run_due()
    paused = await world.get_job(job)
    assert await world.engine.gates.resume("github")
    await world.run_due()

    assert (paused.status, paused.attempts) == ("queued", 0)
    assert (await world.get_job(job)).status == "succeeded"


async def test_a_limit_of_the_application_closes_the_provider_for_everybody(world: World) -> None:
    limited = await world.job(await world.connection())
    world.script(RateLimited("slow down", retry_after_seconds=60, scope="app"))
    await world.run_due()
    await step(world)
    others = [await world.job(await world.connection()) for _ in range(3)]

    assert await world.run_due("12:00:59") == 0
    assert [(await world.get_job(other)).attempts for other in others] == [0, 0, 0]

    world.script(*[SyncResult()] * 4)
    assert await world.run_due("12:01:10") == 4
    assert (await world.get_job(limited)).status == "succeeded"


async def test_three_connections_that_are_limited_at_once_mean_the_application(
    world: World,
) -> None:
    for _ in range(2):
        await limit_one(world)
    alone = await world.job(await world.connection())
    world.script(SyncResult())
    assert await world.run_due() == 1, "two may be a coincidence"
    assert (await world.get_job(alone)).status == "succeeded"

    await limit_one(world)
    await world.job(await world.connection())

    assert await world.run_due("12:00:30") == 0


async def test_limits_that_several_processes_meet_at_once_count_together(world: World) -> None:
    """Each notes its own before it counts, so the last one to note counts all of them."""
    async with world.another_engine() as other:
        ours, theirs = (one.engine._worker.gatekeeper for one in (world, other))
        for gatekeeper in (ours, ours, theirs):
            gatekeeper._notes.limited.append(("github", uuid4(), at("12:01")))
        await ours._note_limited(ours._notes)
        await theirs.step()

    assert len(await world.sql("SELECT FROM {schema}.gates WHERE closed_until IS NOT NULL")) == 1


async def test_one_connection_that_is_limited_again_and_again_is_its_own_affair(
    world: World,
) -> None:
    connection = await world.connection()
    for _ in range(4):
        await world.job(connection)
        world.script(RateLimited("slow down", retry_after_seconds=1))
        await world.run_due()
        await step(world)
        await world.sql("DELETE FROM {schema}.sync_jobs")
    await world.job(await world.connection())
    world.script(SyncResult())

    assert await world.run_due() == 1


async def test_a_provider_that_is_down_costs_nobody_their_attempts(world: World) -> None:
    await go_down(world)
    job = await world.job(await world.connection())

    assert await world.run_due("12:00:29") == 0
    assert (await world.get_job(job)).attempts == 0


async def test_one_probe_at_a_time_less_and_less_often(world: World) -> None:
    await go_down(world)
    for _ in range(5):
        await world.job(await world.connection())
    probes = []
    for second in range(0, 241, 10):
        world.script(*[DOWN] * 5)
        ran = await world.run_due(at("12:00") + timedelta(seconds=second))
        world.connector.script.clear()
        await step(world)
        probes += [second] * ran

    assert probes == [30, 90, 210]


async def test_a_good_probe_opens_the_provider_for_everybody(world: World) -> None:
    await go_down(world)
    jobs = [await world.job(await world.connection()) for _ in range(5)]
    world.script(*[SyncResult()] * 40)
    # The others may follow at once: the loop that reads the gates notices the good probe by itself.
    assert await world.run_due("12:00:30") >= 1
    await step(world)

    await world.run_due("12:10")

    assert {(await world.get_job(job)).status for job in jobs} == {"succeeded"}


@pytest.mark.parametrize("error", [Unauthorized("401"), RateLimited("429"), KeyError("a fault")])
async def test_other_errors_do_not_mean_that_a_provider_is_down(
    world: World, error: Exception
) -> None:
    await fail(world, 30, error)
    await step(world)

    assert await opened(world) == []


async def test_failures_of_few_connections_do_not_mean_that_a_provider_is_down(
    world: World,
) -> None:
    connections = [await world.connection() for _ in range(4)]
    for _ in range(6):
        for connection in connections:
            await world.job(connection)
        world.script(*[DOWN] * 4)
        await world.run_due()
        await world.sql("DELETE FROM {schema}.sync_jobs")
    await step(world)
    await world.job(await world.connection())
    world.script(SyncResult())

    assert await world.run_due() == 1


async def test_what_several_processes_see_counts_together(world: World) -> None:
    async with world.another_engine() as other:
        for engine in (world, other):
            await fail(engine, 10, DOWN)
        for engine in (world, other, world):
            await step(engine)

    assert await opened(world) == ["github"]


async def test_processes_that_find_it_down_at_once_do_not_wait_for_each_other(world: World) -> None:
    """Each has reported, and one of them opens the gate and forgets what was reported."""
    transaction = world.engine._worker.gatekeeper._pool.transaction
    tally, another_process = (10, 10, [uuid4()]), uuid4()
    async with transaction() as before:
        await gates.report(before, "github", another_process, tally, now=at("11:59:59"))
    async with transaction() as another, asyncio.timeout(10):
        await gates.report(another, "github", another_process, tally, now=at("12:00"))
        async with transaction() as tx:
            await gates.report(tx, "github", uuid4(), tally, now=at("12:00"))
            await gates.open_gate(tx, "github", "down", timedelta(seconds=30), now=at("12:00"))
            await gates.forget_reports(tx, "github")

    assert await opened(world) == ["github"]


async def test_jobs_start_slowly_after_a_good_probe(world: World) -> None:
    """P7: from the usual rate on, doubled every five seconds."""
    await remember(world, starts_per_second=2)
    await go_down(world)
    for _ in range(60):
        await world.job(await world.connection())
    world.script(SyncResult())
    await world.run_due("12:00:30")
    await step(world)

    started = []
    for seconds in (0, 1, 5, 10):
        world.script(*[SyncResult()] * 60)
        started.append(await world.run_due(at("12:00:30") + timedelta(seconds=seconds)))
        world.connector.script.clear()

    # The integral of 2 · 2^(t ÷ 5): 0, 2.1, 14.4, 43.3.
    assert started == [0, 2, 12, 29]


async def test_without_a_usual_rate_there_is_no_ramp(world: World) -> None:
    await go_down(world)
    for _ in range(30):
        await world.job(await world.connection())
    world.script(*[SyncResult()] * 30)
    probed = await world.run_due("12:00:30")
    await step(world)

    assert probed + await world.run_due("12:00:31") == 30


async def test_a_fleet_that_was_away_comes_back_slowly(world: World) -> None:
    await remember(world, starts_per_second=0.1)
    for _ in range(10):
        await world.job(await world.connection())
    world.script(*[SyncResult()] * 10)
    async with world.another_engine() as back:
        back.clock.set(at("12:10"))
        first = await back.run_due()
        after = await back.run_due("12:10:20")

    assert (first, after) == (0, 10)


async def test_it_comes_back_slowly_even_if_the_gates_were_read_before(world: World) -> None:
    """The loop that reads them may be faster than the first claim."""
    await remember(world, starts_per_second=0.1)
    for _ in range(10):
        await world.job(await world.connection())
    async with world.another_engine() as back:
        back.clock.set(at("12:10"))
        gatekeeper = back.engine._worker.gatekeeper
        await gatekeeper.step()
        await gatekeeper.look(gatekeeper._pool.transaction)

        assert list(gatekeeper.open_among(["github", "gitlab"])) == ["gitlab"]


async def test_a_fleet_comes_back_slowly_to_what_nobody_has_queued(world: World) -> None:
    """While the schedulers are away as well, connections come due and no job is queued."""
    await remember(world, starts_per_second=0.1)
    for _ in range(10):
        await world.connection()
    world.script(*[SyncResult()] * 10)
    async with world.another_engine() as back:
        back.clock.set(at("12:10"))
        before = await back.run_due()
        await back.tick(jitter_seconds=0)
        first = await back.run_due()
        after = await back.run_due("12:10:59")

    assert (before, first, after) == (0, 0, 10)


async def test_a_fleet_that_has_little_to_catch_up_starts_as_usual(world: World) -> None:
    await remember(world, starts_per_second=0.1)
    for _ in range(6):
        await world.job(await world.connection())
    world.script(*[SyncResult()] * 6)
    async with world.another_engine() as back:
        back.clock.set(at("12:10"))

        assert await back.run_due() == 6


async def remember(world: World, *, starts_per_second: float) -> None:
    """Remember an hour in which jobs started at this rate, until 12:00."""
    await world.sql(
        "INSERT INTO {schema}.provider_starts"
        " SELECT 'github', $1::timestamptz - make_interval(mins => n), round(60 * $2::float8)"
        " FROM generate_series(1, 60) AS n",
        *(at("12:00"), starts_per_second),
    )


async def limit_one(world: World) -> None:
    await world.job(await world.connection())
    world.script(RateLimited("slow down", retry_after_seconds=60))
    await world.run_due()
    await step(world)


async def go_down(world: World) -> None:
    await fail(world, 20, DOWN)
    await step(world)
    assert await opened(world) == ["github"]
    await world.sql("DELETE FROM {schema}.sync_jobs")


async def fail(world: World, count: int, error: Exception) -> list[UUID]:
    jobs = [await world.job(await world.connection()) for _ in range(count)]
    world.script(*[error] * count)
    await world.run_due()
    return jobs


async def opened(world: World) -> list[str]:
    rows = await world.sql("SELECT provider_slug FROM {schema}.gates WHERE opened_at IS NOT NULL")
    return [row["provider_slug"] for row in rows]


async def step(world: World) -> None:
    """Let the process write down what its runs have shown, and report what it has seen."""
    gatekeeper = world.engine._worker.gatekeeper
    gatekeeper._report_at = 0.0
    await gatekeeper.step()
