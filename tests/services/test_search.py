"""What people type finds what they mean: names, parts of names, ids as they are shown."""

from uuid import UUID, uuid4

import pytest

from support.world import World
from syncline import Connection
from syncline.api.dashboard.formats import short_id
from syncline.clock import new_id
from syncline.errors import Invalid
from syncline.services.search import FOUND
from syncline.store.listings.search import CONNECTIONS_SEARCHED, IDS_OF_A_MOMENT, JOBS_SEARCHED


async def add(world: World, tenant: str, external_id: str, provider: str = "github") -> Connection:
    return await world.engine.connections.create(
        tenant_id=tenant, provider_slug=provider, external_id=external_id
    )


async def names(world: World, text: str, tenant_id: str | None = None) -> list[str]:
    found = await world.engine.search.find(text, tenant_id=tenant_id)
    return [one.external_id for one in found.connections]


async def test_connections_are_found_by_any_part_of_their_external_id(world: World) -> None:
    for name in ("octo/Widgets", "octo/gadgets", "widgets", "100%_sure", "Über"):
        await add(world, "acme", name)
    await add(world, "birch", "widgets-too")

    assert await names(world, "widgets") == ["widgets", "widgets-too", "octo/Widgets"]
    assert await names(world, "WIDGETS", "acme") == ["widgets", "octo/Widgets"]
    assert await names(world, "o/g") == ["octo/gadgets"]
    assert await names(world, "%_") == ["100%_sure"]
    assert await names(world, "%") == ["100%_sure"]
    assert await names(world, "Über") == ["Über"]
    assert await names(world, "nothing like it") == []


async def test_one_connection_is_found_by_its_whole_name(world: World) -> None:
    await add(world, "acme/eu", "repo/1")
    await add(world, "acme", "repo/1")

    assert await names(world, "acme/github/repo/1") == ["repo/1"]
    [found] = (await world.engine.search.find("acme%2Feu/github/repo/1")).connections
    assert found.tenant_id == "acme/eu"
    assert await names(world, "acme/github/repo/1", "birch") == []
    for odd in ("%ff/%00/a", "a/%00/b", "//", "/", "..", "a//b"):
        assert await names(world, odd) == [] or odd == "/", odd


async def test_tenants_are_found_by_any_part_and_the_best_first(world: World) -> None:
    for tenant in ("north", "Northwind", "far-north", "south"):
        await add(world, tenant, "x")

    assert (await world.engine.search.find("north")).tenants == ["north", "Northwind", "far-north"]
    assert (await world.engine.search.find("north", tenant_id="north")).tenants == []


async def test_ids_are_found_whole_by_their_parts_and_as_they_are_shown(world: World) -> None:
    connection = await add(world, "acme", "one")
    job = new_id()
    await world.job(connection, id=job)
    await add(world, "birch", "other")

    async def found(text: str, tenant_id: str | None = None) -> set[UUID]:
        seen = await world.engine.search.find(text, tenant_id=tenant_id)
        ids = {one.id for one in seen.connections} | {one.id for one in seen.jobs}
        return ids & {connection.id, job}

    for id_ in (connection.id, job):
        text = str(id_)
        for form in (text, text.upper(), id_.hex, text[:20], text[3:12], text[-9:], short_id(id_)):
            assert id_ in await found(form), form
            assert id_ in await found(form, "acme"), form
            assert await found(form, "birch") == set(), form
        assert id_ in await found(short_id(id_).replace("…", "..."))
    assert await found(str(uuid4())) == set()


async def test_a_signal_is_found_by_its_id(world: World) -> None:
    connection, id_ = await add(world, "acme", "one"), uuid4()
    await world.sql(
        "INSERT INTO {schema}.signals (id, tenant_id, provider_slug, connection_id, kind)"
        " VALUES ($1, 'acme', 'github', $2, 'opened')",
        *(id_, connection.id),
    )

    assert (await world.engine.search.find(str(id_))).signal_id == id_
    assert (await world.engine.search.find(str(id_), tenant_id="birch")).signal_id is None


async def test_the_newest_matches_are_returned_up_to_a_bound(world: World) -> None:
    for number in range(FOUND + 5):
        await add(world, "acme", f"same-{number:02}")

    found = await names(world, "same")

    assert found == [f"same-{number:02}" for number in range(FOUND + 4, 4, -1)]


async def test_old_connections_are_found_by_their_whole_external_id(world: World) -> None:
    await world.sql(
        "INSERT INTO {schema}.connections (id, tenant_id, provider_slug, external_id, created_at)"
        " SELECT lpad(to_hex(n), 32, '0')::uuid, CASE WHEN n % 1000 = 1 THEN 'few' ELSE 'many' END,"
        "        'p' || n % 3, 'account-' || n, $1"
        "   FROM generate_series(1, $2::int) n",
        *(world.clock(), CONNECTIONS_SEARCHED + 10),
    )

    part = await world.engine.search.find("ccount-1")
    assert len(part.connections) == FOUND
    hidden = await world.engine.search.find("unt-9x")
    assert hidden.connections == []
    assert hidden.searched_to == world.clock()
    assert (await names(world, "account-1"))[0] == "account-1"
    [old] = (await world.engine.search.find("many/p2/account-2")).connections
    assert old.id == UUID(int=2)
    assert await names(world, "account-1001", "few") == ["account-1001"]


async def test_what_cannot_be_stored_is_refused(world: World) -> None:
    for text in ("", "a\0b", "\ud800"):
        with pytest.raises(Invalid, match="q "):
            await world.engine.search.find(text)


def test_the_bounds_are_those_that_the_page_and_the_guide_name() -> None:
    assert (CONNECTIONS_SEARCHED, JOBS_SEARCHED, IDS_OF_A_MOMENT) == (400_000, 200_000, 100_000)
