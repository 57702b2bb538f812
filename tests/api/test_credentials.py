"""Credentials over HTTP: written, used, and never to be seen again."""

from typing import Any

import httpx2
import pytest

from support.http import client_of
from support.world import World
from syncline import Engine, Settings
from syncline.keyring import new_key

CANARY = "canary-3f9a"
NEW = {"tenant_id": "acme", "provider_slug": "github", "external_id": "a-1"}
Client = httpx2.AsyncClient


@pytest.fixture
def engine_settings(engine_settings: dict[str, Any]) -> dict[str, Any]:
    return {"secret_keys": new_key("k1"), **engine_settings}


async def has_credentials(world: World) -> bool:
    return bool(await world.sql("SELECT FROM {schema}.credentials"))


async def test_credentials_are_given_and_never_returned(world: World, local: Client) -> None:
    created = await local.post("/v1/connections", json={**NEW, "credentials": {"token": CANARY}})

    assert created.status_code == 201, created.text
    assert await has_credentials(world)
    address = created.headers["location"]
    answers = [created, await local.get(address), await local.get("/v1/connections")]
    assert not any(CANARY in answer.text for answer in answers)


async def test_credentials_are_changed_and_forgotten(world: World, local: Client) -> None:
    address = (await local.post("/v1/connections", json=NEW)).headers["location"]

    changed = await local.put(f"{address}/credentials", json={"credentials": {"token": CANARY}})

    assert (changed.status_code, CANARY in changed.text) == (200, False)
    assert await has_credentials(world)
    assert (await local.delete(f"{address}/credentials")).status_code == 200
    assert not await has_credentials(world)


async def test_new_credentials_resume_a_connection_that_needed_them(
    world: World, local: Client
) -> None:
    address = (await local.post("/v1/connections", json=NEW)).headers["location"]
    await world.sql("UPDATE {schema}.connections SET status = 'needs_reauth'")

    changed = await local.put(f"{address}/credentials", json={"credentials": {"token": "new"}})

    assert changed.json()["status"] == "active"


async def test_bad_credentials_are_refused_without_being_repeated(local: Client) -> None:
    answer = await local.post("/v1/connections", json={**NEW, "credentials": [CANARY]})

    assert answer.status_code == 422
    assert "credentials" in answer.text
    assert CANARY not in answer.text


async def test_without_a_key_credentials_are_refused_and_nothing_is_added(
    database_url: str,
) -> None:
    async with Engine(Settings(database_url=database_url)) as engine:
        await engine.migrate()
        new = {**NEW, "provider_slug": "demo", "credentials": {"token": "b"}}
        async with client_of(engine) as client:
            answer = await client.post("/v1/connections", json=new)

        assert answer.status_code == 409
        assert "SYNCLINE_SECRET_KEYS" in answer.json()["detail"]
        assert await engine.connections.list() == []
