"""Figures by what happened: written by every process, added up by one (R1, R2)."""

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from support.world import World, at
from syncline import Permanent, RateLimited, Signal, SyncResult, Transient
from syncline.engine.upkeep.figures import FigureKeeper
from syncline.policy.figures import KEPT, LENGTHS, Histogram, Span, Tally
from syncline.policy.health import Health
from syncline.store.stats import figures

NOW = at("12:00")
SEEN = Signal(kind="seen", occurred_at=NOW, payload={})
ROWS = "SELECT span, starts_at, outcomes::jsonb::text, signals FROM {schema}.figures ORDER BY span"
REPORTS = "SELECT minute, outcomes::jsonb::text FROM {schema}.figure_reports ORDER BY minute"


@pytest.fixture
def keeper(world: World) -> FigureKeeper:
    return world.engine._upkeep.figures


async def run(world: World, *script: Any) -> None:
    """Run these endings of the connector, each on a connection of its own."""
    for ending in script:
        connection = await world.connection()
        world.connector.script.append(ending)
        await world.job(connection, scheduled_at=world.clock())
        await world.engine.run_due()


async def test_a_run_counts_in_the_minute_in_which_it_ended_with_its_outcome(
    world: World, keeper: FigureKeeper
) -> None:
    """A retry is included: the job is still queued, and its attempt has ended."""
    await run(world, SyncResult([SEEN, SEEN]), Permanent("no"), SyncResult())
    world.clock.advance(seconds=90)
    await run(world, Transient("later"))
    world.clock.advance(seconds=90)
    await keeper.add_up()

    rows = await world.sql(ROWS + ", starts_at")
    outcomes = [(row["span"], row["outcomes"], row["signals"]) for row in rows]
    assert outcomes == [
        ("day", '{"Permanent": 1, "Transient": 1, "succeeded": 2}', 2),
        ("hour", '{"Permanent": 1, "Transient": 1, "succeeded": 2}', 2),
        ("minute", '{"Permanent": 1, "succeeded": 2}', 2),
        ("minute", '{"Transient": 1}', 0),
    ]
    assert await world.sql(REPORTS) == []


async def test_reports_count_once_whoever_adds_them_up(world: World, keeper: FigureKeeper) -> None:
    await run(world, SyncResult())
    world.clock.advance(seconds=90)
    await keeper.add_up()
    await run(world, SyncResult())
    world.clock.advance(seconds=90)
    await keeper.add_up()
    await keeper.add_up()

    [day] = await world.sql(ROWS.replace("ORDER", "WHERE span = 'day' ORDER"))
    assert day["outcomes"] == '{"succeeded": 2}'


async def test_what_could_not_be_written_is_written_later_and_once(
    world: World, keeper: FigureKeeper
) -> None:
    connection = await world.connection()
    world.connector.script.append(SyncResult())
    await world.job(connection, scheduled_at=world.clock())
    await world.sql("ALTER TABLE {schema}.figure_reports RENAME TO away")
    with pytest.raises(Exception, match="figure_reports"):
        await world.engine.run_due()
    await world.sql("ALTER TABLE {schema}.away RENAME TO figure_reports")
    await keeper.write()
    await keeper.write()

    assert [row["outcomes"] for row in await world.sql(REPORTS)] == ['{"succeeded": 1}']


async def test_nothing_is_written_where_nothing_happened(
    world: World, keeper: FigureKeeper
) -> None:
    await keeper.write()
    assert await world.sql(REPORTS) == []


async def test_old_figures_go(world: World, keeper: FigureKeeper) -> None:
    async with world.engine._pool.transaction() as tx:
        for span in Span:
            sums = {(NOW - KEPT[span] - timedelta(days=1), "github"): Tally(signals=1)}
            await figures.save(tx, span, sums)
    keeper._prune_at = 0
    await keeper.add_up()
    assert await world.sql(ROWS) == []


async def test_a_dead_provider_is_not_called_well(world: World) -> None:
    """The jobs that were made last have not run yet: what counts is which attempts ended."""
    heartbeat = world.engine._upkeep.heartbeat
    heartbeat.enter(scheduler=True, executor=True)
    await heartbeat.beat()
    await run(world, *[Transient("down")] * 6)
    for _ in range(20):
        await world.job(await world.connection(), scheduled_at=world.clock())
    [github] = (await world.engine.stats.providers()).items

    assert github.health is Health.FAILING
    assert (github.recent.failures, github.recent.commonest_error) == (6, "Transient")
    assert github.recent.failing_since == NOW.replace(second=0)
    assert github.affected is not None
    assert (github.affected.connections, github.affected.tenants) == (26, 1)


async def test_history_has_runs_signals_and_times(world: World) -> None:
    await run(world, SyncResult([SEEN]), RateLimited("slow down"))
    found = await world.engine.stats.history("1h")

    assert found.points[-1].outcomes == {"succeeded": 1, "RateLimited": 1}
    assert (len(found.points), found.points[-1].signals) == (60, 1)
    assert found.points[-1].duration_p95 is not None
    assert (await world.engine.stats.history("1h", provider_slug="other")).points[-1].signals == 0
    with pytest.raises(ValueError, match="period"):
        await world.engine.stats.history("2h")


async def test_two_years_of_a_hundred_providers_take_little_room(world: World) -> None:
    """R2: minutes of 48 hours, hours of 30 days and days of two years, in less than 150 MB."""
    usual = Tally(
        Counter({"succeeded": 987, "Transient": 65, "RateLimited": 43, "Timeout": 21}),
        signals=12_345,
        durations=Histogram(dict.fromkeys(range(1, 14), 123)),
        delays=Histogram(dict.fromkeys(range(12), 123)),
        backlog=1234,
    )
    async with world.engine._pool.transaction() as tx:
        for span, kept in KEPT.items():
            times = [at("12:00") + n * LENGTHS[span] for n in range(kept // LENGTHS[span])]
            sums = {(time, "a-provider-slug"): usual for time in times}
            await figures.save(tx, span, sums)
    [row] = await world.sql(
        "SELECT count(*) AS rows, pg_total_relation_size('{schema}.figures') AS bytes"
        " FROM {schema}.figures"
    )

    assert row["rows"] == 4331
    assert 100 * row["bytes"] < 150_000_000
