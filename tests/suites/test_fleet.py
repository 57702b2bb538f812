"""The rows that the fleet is filled with are those of a running engine."""

from fleet.fill import FLOODING, PROVIDERS, fill, rows

from syncline import Engine, Settings

CONNECTIONS = 2_000


async def test_a_filled_database_breaks_no_invariant(database_url: str) -> None:
    async with Engine(Settings(database_url=database_url)) as engine:
        await engine.migrate()
        await fill(database_url, CONNECTIONS)

        assert await engine.verify() == []
        found = await engine.stats.providers()
        history = await engine.stats.history("90d")

    made = await rows(database_url)
    assert made["connections"] == CONNECTIONS
    assert made["sync_jobs"] >= 2 * CONNECTIONS
    assert {one.provider_slug for one in found.items} == set(PROVIDERS)
    assert all(point.outcomes["succeeded"] for point in history.points[:-1])


async def test_a_tenant_has_a_fifth_of_the_connections(database_url: str) -> None:
    async with Engine(Settings(database_url=database_url)) as engine:
        await engine.migrate()
        await fill(database_url, CONNECTIONS)
        seen = await engine.stats.overview(tenant_id=FLOODING)

    assert seen.counts.connections.count == CONNECTIONS / 5
