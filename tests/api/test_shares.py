"""`/v1/tenants` and `/v1/caps`: weights and caps, for operators."""

import re

import httpx2

from support.http import client_of
from support.world import World
from syncline.policy.evidence import Reason

Client = httpx2.AsyncClient


async def test_an_operator_sets_and_removes_a_cap(world: World, operator: Client) -> None:
    whose = {"tenant_id": "acme", "provider_slug": "github"}
    await world.running_job(await world.connection())

    made = await operator.put("/v1/caps", json={**whose, "max_running": 7})
    listed = await operator.get("/v1/caps")
    removed = await operator.put("/v1/caps", json={**whose, "max_running": None})

    assert made.json()["items"] == [{**whose, "max_running": 7, "running": 1}]
    assert listed.json() == made.json()
    assert removed.json()["items"] == []


async def test_an_operator_sets_a_weight(operator: Client) -> None:
    answer = await operator.put("/v1/tenants", json={"tenant_id": "acme", "weight": 2.5})

    assert answer.status_code == 200
    assert [one["weight"] for one in (await operator.get("/v1/tenants")).json()["items"]] == [2.5]


async def test_all_tenants_are_listed_page_by_page(world: World, operator: Client) -> None:
    for tenant, status in (("acme", "active"), ("acme", "error"), ("birch", "active")):
        await world.connection(tenant=tenant, status=status)
    for tenant in ("birch", "nobody-yet"):
        await operator.put("/v1/tenants", json={"tenant_id": tenant, "weight": 2})

    first = (await operator.get("/v1/tenants?limit=1")).json()
    second = (await operator.get(f"/v1/tenants?limit=1&page={first['next_page']}")).json()
    only_set = (await operator.get("/v1/tenants?only_set=true")).json()

    found = {
        one["tenant_id"]: (one["connections"], one["weight"])
        for one in (*first["items"], *second["items"])
    }
    assert found == {
        "acme": ({"active": 1, "error": 1}, 1),
        "birch": ({"active": 1}, 2),
        "nobody-yet": ({}, 2),
    }
    assert second["next_page"] is None
    assert [one["tenant_id"] for one in only_set["items"]] == ["birch", "nobody-yet"]


async def test_what_makes_no_sense_is_refused(operator: Client) -> None:
    for path, body in (
        ("/v1/caps", {"max_running": 1}),
        ("/v1/caps", {"tenant_id": "acme"}),
        ("/v1/caps", {"tenant_id": "acme", "max_running": -1}),
        ("/v1/tenants", {"tenant_id": "acme", "weight": 0}),
    ):
        assert (await operator.put(path, json=body)).status_code == 422, body


async def test_tenants_see_and_set_nothing_of_it(world: World) -> None:
    _, secret = await world.engine.access.create_key("acme's", tenant_id="acme", scope="admin")
    async with client_of(world.engine, secret) as client:
        assert (await client.get("/v1/caps")).status_code == 403
        assert (await client.get("/v1/tenants")).status_code == 403
        cap = {"tenant_id": "acme", "max_running": 1000}
        assert (await client.put("/v1/caps", json=cap)).status_code == 403


async def test_an_explanation_names_a_full_cap_to_the_tenant(world: World) -> None:
    """What others run fills the cap as well, but the tenant does not see it."""
    await world.running_job(await world.connection(tenant="birch"))
    connection = await world.connection()
    await world.job(connection)
    await world.engine.shares.set_cap(1, provider_slug="github")
    _, secret = await world.engine.access.create_key("acme's", tenant_id="acme", scope="read")
    async with client_of(world.engine, secret) as client:
        answer = await client.get(f"/v1/connections/{connection.id}/explanation")

    assert answer.json()["reason"] == Reason.CAP
    assert "birch" not in answer.text
    assert "running" not in answer.json()["evidence"]["full_caps"][0]


async def test_the_providers_page_shows_caps(world: World, local: Client) -> None:
    await world.connection()
    await world.engine.shares.set_cap(7, provider_slug="github")
    await world.engine.shares.set_cap(2, tenant_id="acme", provider_slug="github")

    markup = re.sub("<[^>]*>", " ", (await local.get("/providers")).text)
    page = " ".join(markup.split())

    assert "At most 7 jobs run at once; 0 run now." in page
    assert "At most 2 jobs of acme run at once; 0 run now." in page
