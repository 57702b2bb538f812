"""How many connections a tenant's key may make, and how much a tenant may store."""

import asyncio
from typing import Any

import httpx2
import pytest

from support.world import Logged, World
from syncline.services.connections import NewConnection

Client = httpx2.AsyncClient


def new(number: int, **fields: Any) -> dict[str, Any]:
    return {"provider_slug": "github", "external_id": f"a-{number}", **fields}


async def count(world: World) -> int:
    rows = await world.sql("SELECT count(*) FROM {schema}.connections")
    return int(rows[0][0])


@pytest.mark.engine(api={"max_connections_per_tenant": 3})
async def test_a_tenants_key_makes_only_so_many_connections(world: World, acme: Client) -> None:
    for number in range(3):
        assert (await acme.post("/v1/connections", json=new(number))).status_code == 201

    refused = await acme.post("/v1/connections", json=new(3))
    there = await acme.post("/v1/connections/bulk", json={"connections": [new(0), new(1)]})
    bulk = await acme.post("/v1/connections/bulk", json={"connections": [new(0), new(4)]})

    assert refused.status_code == 409
    assert refused.json()["detail"] == (
        "tenant acme may have 3 connections (api.max_connections_per_tenant): "
        "remove some, or ask an operator"
    )
    assert (there.status_code, there.json()["existing"]) == (200, 2)
    assert bulk.status_code == 409
    assert await count(world) == 3


@pytest.mark.engine(api={"max_connections_per_tenant": 3})
async def test_a_bulk_may_use_up_the_limit_and_operators_may_exceed_it(
    world: World, acme: Client, operator: Client
) -> None:
    few = {"connections": [new(number) for number in range(3)]}
    assert (await acme.post("/v1/connections/bulk", json=few)).json()["created"] == 3
    assert (await acme.post("/v1/connections", json=new(3))).status_code == 409

    more = await operator.post("/v1/connections", json=new(3, tenant_id="acme"))

    assert more.status_code == 201
    assert await count(world) == 4


@pytest.mark.engine(api={"max_connections_per_tenant": 3})
async def test_two_requests_at_once_cannot_both_take_the_last_place(world: World) -> None:
    connections = world.engine.connections

    async def create(number: int) -> bool:
        try:
            await connections.add(NewConnection("acme", "github", str(number)), at_most=3)
        except ValueError:
            return False
        return True

    made = await asyncio.gather(*(create(number) for number in range(12)))

    assert sum(made) == 3
    assert await count(world) == 3


async def store(world: World, tenant: str, number: int, size: int) -> Any:
    connection = await world.connection(tenant=tenant)
    await world.sql(
        "INSERT INTO {schema}.signals (tenant_id, provider_slug, connection_id, kind, payload)"
        " SELECT $1, 'github', $2, 'x', jsonb_build_object('a',"
        " (SELECT string_agg(md5(random()::text || n::text), '') FROM generate_series(1, $4) n))"
        " FROM generate_series(1, $3)",
        *(tenant, connection.id, number, size),
    )
    return connection


@pytest.mark.engine(api={"max_stored_bytes_per_tenant": 1_900_000})
async def test_a_tenant_that_stores_too_much_is_paused_and_told(
    world: World, acme: Client, operator: Client, logged: Logged
) -> None:
    # About 350 bytes each: more than one batch measures, and too much only in all.
    much, little = await store(world, "acme", 6000, 1), await store(world, "beta", 5, 5)
    job = await world.job(much)

    await world.engine.prune()

    paused = (await acme.get(f"/v1/connections/{much.id}")).json()
    assert paused["status"] == "paused"
    why = paused["status_reason"]["why"]
    assert "tenant acme stores" in why
    assert "the limit is 1,900,000 (api.max_stored_bytes_per_tenant)" in why
    assert (await world.engine.jobs.get(job)).status == "cancelled"
    assert (await world.engine.connections.get(little.id)).status == "active"
    assert [event["connections"] for event in logged("engine.tenant_paused")] == [1]
    refused = [
        await acme.post("/v1/connections", json=new(1)),
        await acme.post("/v1/connections/bulk", json={"connections": [new(1)]}),
        await acme.post(f"/v1/connections/{much.id}/resume"),
        await acme.post(f"/v1/connections/{much.id}/sync"),
        await acme.post(f"/v1/jobs/{job}/retry"),
    ]
    assert [answer.status_code for answer in refused] == [403] * 5
    assert refused[0].json()["type"] == "/docs#problem-storage"
    address = "/v1/connections"
    assert (await operator.post(address, json=new(1, tenant_id="acme"))).status_code == 201
    assert (await operator.post(f"{address}/{much.id}/resume")).status_code == 200


@pytest.mark.engine(api={"max_stored_bytes_per_tenant": 50_000})
async def test_a_tenant_may_go_on_once_it_is_below_the_limit_again(
    world: World, acme: Client
) -> None:
    connection = await store(world, "acme", 40, 50)
    await world.engine.prune()
    assert (await acme.post(f"/v1/connections/{connection.id}/resume")).status_code == 403
    await world.sql("DELETE FROM {schema}.signals")

    await world.engine.prune()

    assert (await acme.post(f"/v1/connections/{connection.id}/resume")).status_code == 200
    assert await world.engine.tenants.stored_bytes("acme") == 0


async def test_without_a_limit_nothing_is_measured(world: World, acme: Client) -> None:
    connection = await store(world, "acme", 40, 50)

    await world.engine.prune()

    assert await world.sql("SELECT FROM {schema}.tenant_usage") == []
    assert (await acme.post(f"/v1/connections/{connection.id}/sync")).status_code == 202


@pytest.mark.engine(api={"max_stored_bytes_per_tenant": 1})
async def test_a_tenant_that_is_deleted_is_forgotten(world: World) -> None:
    await store(world, "acme", 1, 1)
    await world.engine.prune()
    assert await world.engine.tenants.stored_bytes("acme") > 1

    await world.engine.tenants.delete("acme")

    assert await world.sql("SELECT FROM {schema}.tenant_usage") == []
