"""Tenants are listed by name, each with its connections by status, and troubles by provider."""

from support.world import World, at
from syncline.policy.stats import TenantLine
from syncline.services.pagination import Listing
from syncline.store.stats.tenants import CONNECTIONS_COUNTED


async def test_tenants_are_listed_by_name_page_by_page(world: World) -> None:
    for number in range(7):
        for status in ("active", "active", "error")[: number % 3 + 1]:
            await world.connection(tenant=f"t/{number}", status=status)

    found: list[TenantLine] = []
    page: Listing[TenantLine] = Listing([], "")
    while page.next_page is not None:
        page = await world.engine.stats.list_tenants(after=page.next_page or None, limit=3)
        found += page

    assert [line.tenant_id for line in found] == [f"t/{number}" for number in range(7)]
    assert [line.connections for line in found] == [number % 3 + 1 for number in range(7)]
    assert found[2].by_status == {"active": 2, "error": 1}
    assert not any(line.is_bounded for line in found)


async def test_a_large_tenant_is_counted_up_to_a_bound(world: World) -> None:
    await world.sql(
        "INSERT INTO {schema}.connections (tenant_id, provider_slug, external_id)"
        " SELECT 'large', 'github', n::text FROM generate_series(1, $1::int) n",
        CONNECTIONS_COUNTED + 5,
    )

    [line] = await world.engine.stats.list_tenants()

    assert line.is_bounded
    assert line.connections > CONNECTIONS_COUNTED


async def test_the_troubles_of_a_provider_are_its_own(world: World) -> None:
    world.clock.set(at("12:00"))
    for provider in ("github", "demo"):
        await world.connection(provider=provider, status="needs_reauth")
        failing = await world.connection(provider=provider)
        await world.job(failing, retry_after=at("12:10"), attempts=3, error='{"class": "X"}')

    found = await world.engine.stats.troubles_at("demo")

    assert [trouble.status for trouble in found] == ["needs_reauth", "backoff"]
    assert {trouble.provider_slug for trouble in found} == {"demo"}
    assert len(await world.engine.stats.troubles_at("demo", limit=1)) == 2
    assert await world.engine.stats.troubles_at("fax") == []
