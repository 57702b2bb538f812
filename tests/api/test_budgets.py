"""`/v1/budgets`: operators set how many calls may be made; tenants see nothing of it."""

from urllib.parse import quote

import pytest

from support.http import client_of
from support.world import World
from syncline.model import Scope


async def test_an_operator_sets_lists_and_clears_a_budget(world: World) -> None:
    async with client_of(world.engine) as client:
        answer = await client.put(
            "/v1/budgets/google",
            json={"calls": 10_000, "per": "1h", "providers": ["mail", "calendar"]},
        )
        listed = await client.get("/v1/budgets")
        cleared = await client.delete("/v1/budgets/google")
        again = await client.delete("/v1/budgets/google")

    assert answer.status_code == 200
    assert answer.json() == {
        "scope": "google",
        "calls": 10_000,
        "per_seconds": 3600,
        "burst": 100,
        "providers": ["mail", "calendar"],
        "source": "operator",
        "is_in_force": True,
        "room": 100,
        "room_at": None,
        "used": 0,
        "used_since": None,
    }
    assert listed.json()["items"] == [answer.json()]
    assert (cleared.status_code, again.status_code) == (204, 404)


@pytest.mark.parametrize("scope", ["google:{tenant}", 'it\'s "quoted"; -- %', "日本"])
async def test_a_scope_may_have_any_name(world: World, scope: str) -> None:
    async with client_of(world.engine) as client:
        body = {"calls": 10, "per": 60, "providers": ["github"]}
        answer = await client.put(f"/v1/budgets/{quote(scope, safe='')}", json=body)

    assert (answer.status_code, answer.json()["scope"]) == (200, scope)
    assert [one.scope for one in await world.engine.budgets.list()] == [scope]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"calls": 0}, "calls"),
        ({"calls": "many"}, "calls"),
        ({"calls": 10, "per": "soon"}, "per"),
        ({"calls": 10, "burst": 6}, "burst"),
        ({"calls": "unlimited", "burst": 6}, "burst"),
        ({}, "calls"),
        ({"calls": 10, "rate": 5}, "rate"),
    ],
)
async def test_a_bad_budget_is_refused_by_its_field(
    world: World, body: dict[str, object], field: str
) -> None:
    async with client_of(world.engine) as client:
        answer = await client.put("/v1/budgets/google", json=body)

    assert answer.status_code == 422
    assert field in answer.text
    assert await world.engine.budgets.list() == []


async def test_a_tenant_may_neither_see_nor_set_budgets(world: World) -> None:
    _, key = await world.engine.access.create_key("acme", tenant_id="acme", scope=Scope.ADMIN)
    async with client_of(world.engine, key) as client:
        answers = [
            await client.get("/v1/budgets"),
            await client.put("/v1/budgets/google", json={"calls": 1}),
            await client.delete("/v1/budgets/google"),
        ]

    assert [answer.status_code for answer in answers] == [403, 403, 403]
