"""A tenant's key sees and changes nothing of another tenant, by whatever route.

The routes are those that the application has, so a new one is walked as soon as it is there.
"""

import re
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import httpx2
import pytest

from support.http import client_of
from support.routes import methods_of, routes_of
from support.world import World
from syncline.model import ConnectionFilter
from syncline.services.bulk import BulkRequest

Client = httpx2.AsyncClient
BODIES: dict[str, Any] = {
    "edit_connection": {"config": {"stolen": True}},
    "sync_connection": {"job_type": "full"},
    "set_credentials": {"credentials": {"token": "stolen"}},
}
OPEN = {"/healthz", "/readyz", "/docs", "/openapi.json", "/login", "/style.css", "/icon.svg"}
OPEN |= {"/theme.js", "/dashboard.js"}
ENDLESS = ("tail_signals", "listen_for_events")


async def birchs_things(world: World) -> dict[str, Any]:
    """Return ids of another tenant's things, by the names that routes give them."""
    connection = await world.connection(tenant="birch")
    job = await world.job(connection, status="failed", finished_at=world.clock())
    rows = await world.sql(
        "INSERT INTO {schema}.signals (tenant_id, provider_slug, connection_id, kind)"
        " VALUES ('birch', 'github', $1, 'secret') RETURNING id",
        connection.id,
    )
    signal = rows[0]["id"]
    key, _ = await world.engine.access.create_key("birch's own", tenant_id="birch")
    ids = {"connection_id": connection.id, "job_id": job, "signal_id": signal, "key_id": key.id}
    pausing = BulkRequest("pause", ConnectionFilter(tenant_id="birch"))
    action = await world.engine.bulk.start(pausing, expected=1, tenant_id="birch")
    ids |= {"action_id": action.id}
    return {**ids, "action": "cancel", "scope": "github", "provider_slug": "birchs"}


OPERATORS = {"key_id", "scope"}  # only they may name these


async def everything(world: World) -> list[Any]:
    tables = ("connections", "sync_jobs", "signals", "api_keys")
    return [
        await world.sql(f"SELECT t::text FROM {{schema}}.{table} t ORDER BY id") for table in tables
    ]


@pytest.fixture(params=["with the role", "without the role"])
async def walls(world: World, request: pytest.FixtureRequest) -> AsyncIterator[None]:
    """Let requests run as their own role, or as the engine's, because theirs lacks a right."""
    if request.param == "with the role":
        yield
        return
    await world.sql("REVOKE SELECT ON {schema}.workers FROM syncline_api")
    assert (await world.engine.api_role()).statements
    yield
    await world.engine.migrate()


@pytest.mark.usefixtures("walls")
async def test_every_route_answers_a_foreign_id_as_if_it_did_not_exist(
    world: World, acme: Client
) -> None:
    foreign = await birchs_things(world)
    before = await everything(world)
    walked = 0

    for route in routes_of(world.engine):
        names = re.findall(r"{(\w+)}", route.path)
        if not names:
            continue
        assert set(names) <= foreign.keys(), f"{route.path}: give it a foreign id here"
        address = route.path.format(**foreign)
        for method in methods_of(route):
            answer = await acme.request(method, address, json=BODIES.get(route.name))
            walked += 1
            is_operators = not OPERATORS.isdisjoint(names)
            if not route.path.startswith("/v1/") or is_operators:
                assert answer.status_code == 403, (method, route.path, answer.text)
                continue
            assert answer.status_code == 404, (method, route.path, answer.text)
            assert answer.json()["type"] == "/docs#problem-not-found"

    assert walked >= 11
    assert await everything(world) == before


async def test_no_listing_shows_a_foreign_row_whatever_is_asked(world: World, acme: Client) -> None:
    foreign = await birchs_things(world)
    hidden = [str(id_) for id_ in foreign.values() if isinstance(id_, UUID)]
    filters = ["", f"?connection={foreign['connection_id']}", "?tenant=birch", "?provider=github"]

    for route in routes_of(world.engine):
        if "GET" not in methods_of(route) or "{" in route.path or route.name in ENDLESS:
            continue
        for query in filters:
            answer = await acme.get(route.path + query)
            assert answer.status_code in (200, 303, 403, 404, 422), (route.path, query)
            assert not any(id_ in answer.text for id_ in hidden), (route.path, query)
            if query == "?tenant=birch" and route.path.startswith("/v1/"):
                is_refused = answer.status_code in (403, 422)
                assert is_refused or '"items":[]' in answer.text or "stats" in route.path


async def test_counts_include_only_the_tenants_own_rows(world: World, acme: Client) -> None:
    await birchs_things(world)
    await world.connection(tenant="acme")

    stats = (await acme.get("/v1/stats")).json()
    providers = (await acme.get("/v1/providers")).json()

    assert stats["connections"] == {"active": 1}
    assert stats["signals"] == 0
    assert [one["connections"] for one in providers["items"]] == [{"active": 1}]


async def test_a_page_token_of_an_operator_opens_nothing(
    world: World, operator: Client, acme: Client
) -> None:
    for _ in range(3):
        await world.connection(tenant="birch")
    token = (await operator.get("/v1/connections?limit=1")).json()["next_page"]

    assert (await acme.get(f"/v1/connections?page={token}")).json()["items"] == []


async def test_what_a_tenants_key_adds_is_its_own(world: World, acme: Client) -> None:
    new = {"provider_slug": "github", "external_id": "a-1"}

    added = await acme.post("/v1/connections", json=new)
    refused = await acme.post("/v1/connections", json={**new, "tenant_id": "birch"})
    many = {"connections": [{**new, "external_id": "a-2"}, {**new, "tenant_id": "birch"}]}
    refused_too = await acme.post("/v1/connections/bulk", json=many)

    assert added.json()["tenant_id"] == "acme"
    assert (refused.status_code, refused_too.status_code) == (403, 403)
    assert len(await world.engine.connections.list()) == 1


async def test_an_idempotency_key_belongs_to_whoever_chose_it(
    world: World, operator: Client, acme: Client
) -> None:
    headers = {"Idempotency-Key": "7"}
    new = {"tenant_id": "birch", "provider_slug": "github", "external_id": "b-1"}
    await operator.post("/v1/connections", json=new, headers=headers)

    own = {"provider_slug": "github", "external_id": "a-1"}
    answer = await acme.post("/v1/connections", json=own, headers=headers)

    assert (answer.status_code, answer.json()["tenant_id"]) == (201, "acme")


async def test_every_route_needs_a_key_or_says_why_not(world: World) -> None:
    await world.engine.access.create_key("ann")
    async with client_of(world.engine) as stranger:
        for route in routes_of(world.engine):
            address = re.sub(r"{\w+}", str(UUID(int=1)), route.path)
            for method in methods_of(route):
                answer = await stranger.request(method, address)
                if route.path in OPEN:
                    assert answer.status_code in (200, 401), address
                else:
                    assert answer.status_code in (401, 303), (method, address)


async def test_no_get_changes_anything(world: World, operator: Client) -> None:
    things = await birchs_things(world)
    before = await everything(world)

    for route in routes_of(world.engine):
        if route.name not in ENDLESS:
            await operator.get(re.sub(r"{(\w+)}", lambda match: str(things[match[1]]), route.path))

    assert await everything(world) == before
