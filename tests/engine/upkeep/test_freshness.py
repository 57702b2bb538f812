"""Freshness: how old the last good sync of active connections is, by provider."""

from datetime import timedelta

from support.world import World, at
from syncline.engine.upkeep.maintenance import Maintenance
from syncline.store.pool import Pool
from syncline.store.stats import freshness

NOW = at("12:00")


def buckets(world: World, le: str, provider: str = "github") -> float | None:
    return world.metric("sync_engine_freshness_seconds_bucket", provider_slug=provider, le=le)


async def test_ages_are_shown_by_provider(world: World, maintenance: Maintenance) -> None:
    await world.connection(last_finished=NOW - timedelta(seconds=30))
    await world.connection(last_finished=NOW - timedelta(minutes=12))
    await world.connection(provider="git", last_finished=NOW - timedelta(hours=3))

    await maintenance.step()

    assert (buckets(world, "60.0"), buckets(world, "900.0")) == (1, 2)
    assert (buckets(world, "7200.0", "git"), buckets(world, "21600.0", "git")) == (0, 1)


async def test_a_failure_does_not_count_as_a_sync(world: World, maintenance: Maintenance) -> None:
    connection = await world.connection(last_finished=NOW - timedelta(hours=3))
    await world.job(connection, status="failed", finished_at=NOW)

    await maintenance.step()

    assert (buckets(world, "7200.0"), buckets(world, "21600.0")) == (0, 1)


async def test_a_connection_that_never_synced_is_as_old_as_itself(
    world: World, maintenance: Maintenance
) -> None:
    await world.connection(created=NOW - timedelta(minutes=4))
    await world.connection(status="paused", created=NOW - timedelta(days=3))

    await maintenance.step()

    assert (buckets(world, "60.0"), buckets(world, "300.0"), buckets(world, "+Inf")) == (0, 1, 1)


async def test_a_paused_connection_no_longer_counts(world: World, maintenance: Maintenance) -> None:
    await world.connection(last_finished=NOW)
    await maintenance.step()
    await world.sql("UPDATE {schema}.connections SET status = 'paused'")

    await maintenance.step()

    assert buckets(world, "+Inf") == 0


async def test_a_sample_stands_for_many_connections(world: World, pool: Pool) -> None:
    await world.sql(
        "INSERT INTO {schema}.connections (tenant_id, provider_slug, external_id, created_at)"
        " SELECT 'acme', 'github', n::text, $1 FROM generate_series(1, 2000) n",
        NOW,
    )
    async with pool.transaction() as tx:
        found = await freshness.sample(tx, connections=2000, size=100)

    assert found.weight == 20
    assert len(found.connections) <= 600
