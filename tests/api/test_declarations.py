"""Connections that the API refuses by what their connectors declare."""

from typing import Any

import httpx2
import pytest

from support.http import client_of
from support.world import World
from syncline.connectors.github import GitHub
from syncline.engine.upkeep.heartbeat import Heartbeat
from syncline.sdk.declarations import declaration_of
from syncline.testing import ScriptedConnector

GOOD = {"repositories": ["octo/hello"]}


@pytest.fixture
async def operator(world: World) -> Any:
    world.engine.providers["github"] = GitHub()
    _, secret = await world.engine.access.create_key("ann")
    async with client_of(world.engine, secret) as client:
        yield client


def body(**changed: Any) -> dict[str, Any]:
    usual = {"tenant_id": "acme", "provider_slug": "github", "external_id": "r", "config": GOOD}
    return usual | changed


async def test_a_bad_config_is_refused_with_each_field(operator: httpx2.AsyncClient) -> None:
    bad = body(config={"repositories": ["no slash"], "page_size": 0})

    answer = await operator.post("/v1/connections", json=bad)

    assert answer.status_code == 422
    fields = [error["field"] for error in answer.json()["errors"]]
    assert fields == ["config.repositories[0]", "config.page_size"]
    assert (await operator.post("/v1/connections?force=true", json=bad)).status_code == 201


async def test_an_unknown_provider_is_refused_unless_forced(operator: httpx2.AsyncClient) -> None:
    wrong = body(provider_slug="gitub")

    answer = await operator.post("/v1/connections", json=wrong)

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "provider_slug"
    assert "did you mean 'github'?" in answer.json()["detail"]
    assert (await operator.post("/v1/connections?force=true", json=wrong)).status_code == 201


async def test_a_provider_of_a_live_worker_is_known(
    world: World, operator: httpx2.AsyncClient
) -> None:
    engine = world.engine
    elsewhere = {"tickets": ScriptedConnector("tickets")}
    heartbeat = Heartbeat(engine._pool, engine._clock, elsewhere, lambda: (1, 0))
    heartbeat.enter(scheduler=False, executor=True)
    await heartbeat.beat()

    answer = await operator.post("/v1/connections", json=body(provider_slug="tickets"))

    assert answer.status_code == 201
    await heartbeat.leave()
    again = body(provider_slug="tickets", external_id="other")
    assert (await operator.post("/v1/connections", json=again)).status_code == 422


async def test_what_only_a_worker_serves_is_checked_by_its_schema(
    world: World, operator: httpx2.AsyncClient
) -> None:
    engine = world.engine
    del engine.providers["github"]
    heartbeat = Heartbeat(engine._pool, engine._clock, {"github": GitHub()}, lambda: (1, 0))
    heartbeat.enter(scheduler=False, executor=True)
    for _ in range(2):  # the second finds its row
        await heartbeat.beat()

    shown = (await operator.get("/v1/providers/github")).json()
    bad = body(config={"repositories": ["no slash"]}, credentials={"tokn": "s3cret"})
    answer = await operator.post("/v1/connections", json=bad)

    assert shown["title"] == "GitHub"
    assert shown["config_schema"] == declaration_of("github", GitHub()).config_schema
    fields = [error["field"] for error in answer.json()["errors"]]
    assert fields == ["config.repositories[0]", "credentials"]
    assert (await operator.post("/v1/connections", json=body())).status_code == 201


async def test_a_batch_names_the_place_of_each_problem(operator: httpx2.AsyncClient) -> None:
    batch = {"connections": [body(), body(external_id="s", config={})]}

    answer = await operator.post("/v1/connections/bulk", json=batch)

    assert answer.status_code == 422
    field = answer.json()["errors"][0]["field"]
    assert field == "connections[1].config.repositories"


async def test_changes_are_checked_too(operator: httpx2.AsyncClient) -> None:
    added = (await operator.post("/v1/connections", json=body())).json()["id"]
    path = f"/v1/connections/{added}"

    config = await operator.patch(path, json={"config": {}})
    credentials = await operator.put(f"{path}/credentials", json={"credentials": {"tokn": "s3c"}})

    assert config.json()["errors"][0]["field"] == "config.repositories"
    assert credentials.json()["errors"][0]["field"] == "credentials"
    assert "s3c" not in credentials.text
    assert (await operator.patch(path, json={"interval_seconds": 90})).status_code == 200


async def test_the_library_accepts_any_provider_and_config(world: World) -> None:
    world.engine.providers["github"] = GitHub()

    added = await world.engine.connections.create(
        tenant_id="acme", provider_slug="github", external_id="r", config={"odd": 1}
    )
    changed = await world.engine.connections.set_config(added.id, {"odd": 2})

    assert changed.config == {"odd": 2}


async def test_a_provider_is_shown_with_its_schema(operator: httpx2.AsyncClient) -> None:
    found = (await operator.get("/v1/providers/github")).json()

    assert found["title"] == "GitHub"
    assert "token" in found["auth"]
    assert found["config_schema"]["required"] == ["repositories"]
    missing = await operator.get("/v1/providers/gitub")
    assert missing.status_code == 404
    assert "did you mean 'github'?" in missing.json()["detail"]
