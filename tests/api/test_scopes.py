"""What a key may do: every route has a scope, and a key with a lower one gets 403."""

import re
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import httpx2
import pytest
from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from support.http import client_of
from support.world import World
from syncline.api.app import OPEN_PATHS, create_app
from syncline.api.auth import Needs, Principal, ScopedRoute
from syncline.model import Scope

Client = httpx2.AsyncClient
SOME_ID = str(UUID(int=1))
BODIES: dict[str, Any] = {
    "create_connection": {"tenant_id": "acme", "provider_slug": "github", "external_id": "a-1"},
    "edit_connection": {"interval_seconds": 60},
}
# What was decided for the API, and for the pages' forms; the pages themselves need `read`.
SCOPES = {
    ("GET", "/v1/connections"): Scope.READ,
    ("POST", "/v1/connections"): Scope.ADMIN,
    ("POST", "/v1/connections/bulk"): Scope.ADMIN,
    ("GET", "/v1/connections/{connection_id}"): Scope.READ,
    ("PATCH", "/v1/connections/{connection_id}"): Scope.OPERATE,
    ("DELETE", "/v1/connections/{connection_id}"): Scope.ADMIN,
    ("POST", "/v1/connections/{connection_id}/pause"): Scope.OPERATE,
    ("POST", "/v1/connections/{connection_id}/resume"): Scope.OPERATE,
    ("POST", "/v1/connections/{connection_id}/sync"): Scope.OPERATE,
    ("GET", "/v1/connections/{connection_id}/explanation"): Scope.READ,
    ("PUT", "/v1/connections/{connection_id}/credentials"): Scope.ADMIN,
    ("DELETE", "/v1/connections/{connection_id}/credentials"): Scope.ADMIN,
    ("GET", "/v1/jobs"): Scope.READ,
    ("GET", "/v1/jobs/{job_id}"): Scope.READ,
    ("GET", "/v1/jobs/{job_id}/attempts"): Scope.READ,
    ("POST", "/v1/jobs/{job_id}/retry"): Scope.OPERATE,
    ("POST", "/v1/jobs/{job_id}/cancel"): Scope.OPERATE,
    ("GET", "/v1/signals"): Scope.READ,
    ("GET", "/v1/signals/stream"): Scope.READ,
    ("GET", "/v1/signals/follow"): Scope.READ,
    ("GET", "/v1/signals/tail"): Scope.READ,
    ("GET", "/v1/signals/{signal_id}"): Scope.READ,
    ("GET", "/v1/providers"): Scope.READ,
    ("GET", "/v1/providers/{provider_slug}"): Scope.READ,
    ("GET", "/v1/stats"): Scope.READ,
    ("GET", "/v1/stats/history"): Scope.READ,
    ("GET", "/v1/workers"): Scope.READ,
    ("GET", "/v1/tenants"): Scope.READ,
    ("PUT", "/v1/tenants"): Scope.ADMIN,
    ("GET", "/v1/caps"): Scope.READ,
    ("POST", "/v1/connections/actions"): Scope.OPERATE,
    ("POST", "/v1/jobs/actions"): Scope.OPERATE,
    ("GET", "/v1/actions"): Scope.READ,
    ("GET", "/v1/actions/{action_id}"): Scope.READ,
    ("POST", "/v1/actions/{action_id}/cancel"): Scope.OPERATE,
    ("GET", "/v1/pauses"): Scope.READ,
    ("PUT", "/v1/pauses"): Scope.OPERATE,
    ("PUT", "/v1/caps"): Scope.ADMIN,
    ("GET", "/v1/budgets"): Scope.READ,
    ("PUT", "/v1/budgets/{scope}"): Scope.ADMIN,
    ("DELETE", "/v1/budgets/{scope}"): Scope.ADMIN,
    ("GET", "/v1/audit"): Scope.READ,
    ("GET", "/v1/keys"): Scope.ADMIN,
    ("POST", "/v1/keys"): Scope.ADMIN,
    ("DELETE", "/v1/keys/{key_id}"): Scope.ADMIN,
    ("GET", "/connections/new"): Scope.ADMIN,
    ("POST", "/connections/new"): Scope.ADMIN,
    ("GET", "/connections/{connection_id}/edit"): Scope.OPERATE,
    ("POST", "/connections/{connection_id}/edit"): Scope.OPERATE,
    ("GET", "/connections/{connection_id}/reconnect"): Scope.ADMIN,
    ("POST", "/connections/{connection_id}/reconnect"): Scope.ADMIN,
    ("POST", "/connections/bulk"): Scope.OPERATE,
    ("POST", "/connections/{connection_id}/interval"): Scope.OPERATE,
    ("POST", "/connections/{connection_id}/{action}"): Scope.OPERATE,
    ("POST", "/jobs/{job_id}/{action}"): Scope.OPERATE,
    ("POST", "/actions/new"): Scope.OPERATE,
    ("POST", "/actions/{action_id}/cancel"): Scope.OPERATE,
    ("POST", "/pause"): Scope.OPERATE,
    ("POST", "/logout"): Scope.READ,
}


def routes(app: FastAPI) -> list[APIRoute]:
    found = [route for route in walk(app.routes) if route.path not in OPEN_PATHS]
    assert len(found) > 30
    return found


def walk(found: Iterable[BaseRoute]) -> Iterator[APIRoute]:
    for route in found:
        if isinstance(route, APIRoute):
            yield route
        else:
            yield from walk(route.original_router.routes)  # type: ignore[attr-defined]


def needs_of(route: APIRoute) -> Needs:
    [needs] = [one.call for one in route.dependant.dependencies if isinstance(one.call, Needs)]
    assert isinstance(needs, Needs)
    return needs


async def client_with(world: World, scope: Scope, tenant: str | None = None) -> Client:
    _, secret = await world.engine.access.create_key(scope, tenant_id=tenant, scope=scope)
    return client_of(world.engine, secret)


async def test_every_route_has_the_scope_that_was_decided_for_it(world: World) -> None:
    found = {
        (method, route.path): needs_of(route).scope
        for route in routes(create_app(world.engine))
        for method in route.methods or ()
    }

    for place, scope in found.items():
        expected = SCOPES.get(place, Scope.READ if place[0] == "GET" else None)
        assert scope == expected, f"{place}: decide on its scope, and write it down here"
    assert found.keys() >= SCOPES.keys()


async def test_a_key_with_a_lower_scope_is_refused_by_every_route(world: World) -> None:
    refused = 0
    for lower in (Scope.READ, Scope.OPERATE):
        async with await client_with(world, lower) as client:
            for route in routes(create_app(world.engine)):
                if lower.includes(needs_of(route).scope):
                    continue
                address = re.sub(r"{\w+}", SOME_ID, route.path)
                for method in route.methods or ():
                    answer = await client.request(method, address, json=BODIES.get(route.name))
                    assert answer.status_code == 403, (method, route.path, answer.text)
                    assert f"scope {needs_of(route).scope}" in answer.text
                    refused += 1

    assert refused == 35 + 16  # with the scope read, and with operate


async def test_a_key_with_its_scope_is_let_through(world: World) -> None:
    connection = await world.connection()
    address = f"/v1/connections/{connection.id}"
    async with await client_with(world, Scope.OPERATE, "acme") as client:
        assert (await client.get(address)).status_code == 200
        assert (await client.post(f"{address}/pause")).status_code == 200
        assert (await client.patch(address, json={"cursor": None})).status_code == 200
        config = await client.patch(address, json={"interval_seconds": 60, "config": {}})
        assert (config.status_code, config.json()["type"]) == (403, "/docs#problem-scope")
        assert (await client.delete(address)).status_code == 403
    async with await client_with(world, Scope.ADMIN, "acme") as client:
        assert (await client.patch(address, json={"config": {"a": 1}})).status_code == 200
        assert (await client.delete(address)).status_code == 204


async def test_a_browser_has_the_scope_of_its_key(world: World) -> None:
    connection = await world.connection()
    job = await world.job(connection, status="failed", finished_at=world.clock())
    pages = ("/connections", f"/connections/{connection.id}", f"/jobs/{job}")
    shown: dict[Scope, str] = {}
    for scope in (Scope.READ, Scope.OPERATE):
        _, secret = await world.engine.access.create_key("ann", scope=scope)
        async with client_of(world.engine) as browser:
            await browser.post("/login", data={"key": secret})
            shown[scope] = "".join([(await browser.get(page)).text for page in pages])
            token = Principal("ann", session=browser.cookies["syncline_session"]).csrf_token
            address = f"/connections/{connection.id}/pause"
            pressed = await browser.post(address, data={"csrf": token})
            assert pressed.status_code == (403 if scope == Scope.READ else 303), pressed.text

    forms = {
        scope: re.findall(r'method="post" action="(\S+)"', html) for scope, html in shown.items()
    }
    assert set(forms[Scope.READ]) == {"/logout"}
    assert len(set(forms[Scope.OPERATE])) == 7
    assert 'name="ids"' not in shown[Scope.READ]


def test_a_route_without_a_scope_cannot_be_made() -> None:
    router = APIRouter(route_class=ScopedRoute)

    with pytest.raises(TypeError, match="/open declares 0 scopes"):
        router.add_api_route("/open", lambda: None)


async def test_the_description_names_every_scope(local: Client) -> None:
    document = (await local.get("/openapi.json")).json()
    page = (await local.get("/docs")).text

    told = {
        (method.upper(), path): operation["security"][0]["key"]
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    assert all(told[place] == [SCOPES[place]] for place in told)
    assert "Scope: <code>operate</code>" in page


async def test_a_key_from_before_scopes_goes_on_as_it_was(world: World) -> None:
    """Rows that older code writes have no scope, no end and a bare prefix."""
    secret = f"slte_{'a' * 12}_{'b' * 64}"
    await world.sql(
        "INSERT INTO {schema}.api_keys (id, name, tenant_id, prefix, digest, created_at)"
        " VALUES (gen_random_uuid(), 'old', 'acme', $1, sha256($2), now())",
        *("a" * 12, secret.encode()),
    )

    key = await world.engine.access.authenticate(secret)

    assert key is not None
    assert (key.scope, key.expires_at) == (Scope.ADMIN, None)
    assert key.begins_with == f"slte_{'a' * 12}"
    [listed] = await world.engine.access.list_keys()
    assert listed.status == "active"


async def test_operators_and_tenants_keys_are_told_apart_at_sight(world: World) -> None:
    entry, operators = await world.engine.access.create_key("ann")
    _, tenants = await world.engine.access.create_key("acme's", tenant_id="acme")

    assert re.fullmatch(r"syncline_operator_[0-9a-f]{12}_[0-9a-f]{64}", operators)
    assert re.fullmatch(r"syncline_tenant_[0-9a-f]{12}_[0-9a-f]{64}", tenants)
    assert operators.startswith(entry.begins_with)
    swapped = operators.replace("operator", "tenant")
    assert await world.engine.access.authenticate(swapped) is None


async def test_a_key_that_expires_soon_says_so_in_every_answer(world: World) -> None:
    _, secret = await world.engine.access.create_key("ann", expires_in=timedelta(days=100))
    async with client_of(world.engine, secret) as client:
        before = await client.get("/v1/stats")
        world.clock.advance(seconds=86 * 24 * 3600)
        answers = [
            await client.get("/v1/stats"),
            await client.get(f"/v1/jobs/{SOME_ID}"),
            await client.get("/connections"),
        ]

    assert "Syncline-Key-Expires" not in before.headers
    assert [answer.status_code for answer in answers] == [200, 404, 200]
    for answer in answers:
        assert answer.headers["Syncline-Key-Expires"] == "2025-04-11T12:00:00Z"
    said = re.sub("<[^>]*>", "", answers[-1].text)
    assert "expires on 2025-04-11 12:00:00 UTC" in said


async def test_the_last_use_is_noted_and_written_later(world: World) -> None:
    key, secret = await world.engine.access.create_key("ann")

    async def stored() -> Any:
        [row] = await world.sql("SELECT last_used_at FROM {schema}.api_keys")
        return row["last_used_at"]

    async with client_of(world.engine, secret) as client:
        for _ in range(3):
            world.clock.advance(seconds=1)
            await client.get("/v1/stats")
    used_at = world.clock()

    assert await stored() is None  # no request waits for a write
    assert [one.last_used_at for one in await world.engine.access.list_keys()] == [used_at]
    await world.engine._upkeep.maintenance.step()
    assert await stored() == used_at
    assert key.last_used_at is None


async def test_uses_of_one_key_by_two_processes_keep_the_latest(world: World) -> None:
    _, secret = await world.engine.access.create_key("ann")
    async with world.another_engine() as other:
        await world.engine.access.authenticate(secret)
        world.clock.advance(seconds=5)
        latest = world.clock()
        await other.engine.access.authenticate(secret)
    await world.engine._upkeep.maintenance.step()

    [row] = await world.sql("SELECT last_used_at FROM {schema}.api_keys")
    assert row["last_used_at"] == latest  # the other one wrote its own when it closed


async def test_a_wrong_key_does_not_count_as_used(world: World) -> None:
    _, secret = await world.engine.access.create_key("ann")

    await world.engine.access.authenticate(secret[:-1] + "x")

    assert [one.last_used_at for one in await world.engine.access.list_keys()] == [None]


async def test_a_tenants_key_asks_for_a_priority_of_10_at_most(
    world: World, acme: Client, operator: Client
) -> None:
    connection = await world.connection(tenant="acme")
    address = f"/v1/connections/{connection.id}/sync"

    refused = await acme.post(address, json={"priority": 11})
    highest = await acme.post(address, json={"priority": 10})
    operators = await operator.post(address, json={"priority": 32_767})

    assert refused.status_code == 422
    assert refused.json()["errors"] == [
        {"field": "priority", "rule": "a tenant's key may use at most 10"}
    ]
    assert (highest.status_code, highest.json()["priority"]) == (202, 10)
    assert (operators.status_code, operators.json()["priority"]) == (202, 32_767)
