"""`/v1/keys`: made once, shown once, listed and revoked by operators whose key may administer."""

import asyncio
import logging
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from support.http import client_of
from support.world import World
from syncline.engine.upkeep.maintenance import Maintenance

Client = httpx2.AsyncClient


async def test_a_key_is_made_and_shown_once(world: World, operator: Client) -> None:
    body = {"name": "acme's", "tenant_id": "acme", "scope": "operate", "expires_in_days": 30}

    made = await operator.post("/v1/keys", json=body)
    listed = await operator.get("/v1/keys")

    assert made.status_code == 201
    secret = made.json()["key"]
    assert secret.startswith(made.json()["begins_with"] + "_")
    assert secret.startswith("syncline_tenant_")
    assert made.json()["scope"] == "operate"
    assert made.json()["expires_at"] == "2025-01-31T12:00:00Z"
    assert secret.rpartition("_")[2] not in listed.text
    assert [one["name"] for one in listed.json()["items"]] == ["ann", "acme's"]
    assert await world.engine.access.authenticate(secret) is not None


async def test_no_tenant_may_have_the_name_that_means_all(operator: Client) -> None:
    """In the database `*` stands for an operator, who sees every tenant's rows."""
    answer = await operator.post("/v1/keys", json={"name": "all", "tenant_id": "*"})

    assert answer.status_code == 422
    assert "every tenant" in answer.text


async def test_the_same_request_makes_another_key(operator: Client) -> None:
    headers = {"Idempotency-Key": "1"}

    first = await operator.post("/v1/keys", json={"name": "bob"}, headers=headers)
    second = await operator.post("/v1/keys", json={"name": "bob"}, headers=headers)

    assert first.json()["key"] != second.json()["key"]


async def test_a_revoked_key_is_refused_and_listed(world: World, operator: Client) -> None:
    key, secret = await world.engine.access.create_key("bob")
    async with client_of(world.engine, secret) as bob:
        assert (await bob.get("/v1/stats")).status_code == 200

        revoked = await operator.delete(f"/v1/keys/{key.id}")

        assert (revoked.status_code, revoked.json()["status"]) == (200, "revoked")
        assert (await bob.get("/v1/stats")).status_code == 401
    [_, listed] = (await operator.get("/v1/keys")).json()["items"]
    assert (listed["status"], listed["last_used_at"]) == ("revoked", "2025-01-01T12:00:00Z")


async def test_tenants_keys_may_not_manage_keys(acme: Client, operator: Client) -> None:
    for method, path, body in (
        ("GET", "/v1/keys", None),
        ("POST", "/v1/keys", {"name": "mine", "tenant_id": "acme"}),
    ):
        answer = await acme.request(method, path, json=body)
        assert (answer.status_code, answer.json()["type"]) == (403, "/docs#problem-operators-only")


async def test_a_bad_key_is_refused(operator: Client) -> None:
    bad: list[dict[str, Any]] = [
        {"name": ""},
        {"name": "a\0b"},
        {"name": "x" * 101},
        {"name": "x", "scope": "root"},
        {"name": "x", "expires_in_days": 0},
        {"name": "x", "expires_in_days": 3651},
        {"name": "x", "expires_in_days": 5, "never_expires": True},
        {"name": "x", "tenant_id": ""},
    ]
    for body in bad:
        assert (await operator.post("/v1/keys", json=body)).status_code == 422, body


@pytest.mark.engine(api={"key_days": 7})
async def test_the_setting_decides_how_long_a_key_lasts(world: World, operator: Client) -> None:
    usual = (await operator.post("/v1/keys", json={"name": "x"})).json()
    endless = (await operator.post("/v1/keys", json={"name": "y", "never_expires": True})).json()

    assert usual["expires_at"] == "2025-01-08T12:00:00Z"
    assert endless["expires_at"] is None


async def test_a_key_that_expires_soon_is_logged_once_and_counted(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    key, secret = await world.engine.access.create_key("ann", expires_in=timedelta(days=20))
    await world.engine.access.create_key("bob")
    maintenance: Maintenance = world.engine._upkeep.maintenance

    with caplog.at_level(logging.WARNING, "syncline.engine"):
        await maintenance.step()
        assert caplog.records == []
        world.clock.advance(seconds=10 * 86_400)
        await maintenance.step()
        await maintenance.step()

    [record] = caplog.records
    assert record.getMessage() == (
        f"engine.key_expires key_id={key.id} key_name=ann expires_at=2025-01-21T12:00:00+00:00"
    )
    assert secret not in caplog.text
    assert world.metric("sync_engine_keys_expiring") == 1
    world.clock.advance(seconds=10 * 86_400)
    await maintenance.step()
    assert world.metric("sync_engine_keys_expiring") == 0


async def test_doctor_warns_of_keys_that_expire_soon(world: World) -> None:
    async def found() -> tuple[str, str]:
        [diagnosis] = [
            one for one in await world.engine.doctor.diagnose() if one.name == "API keys"
        ]
        return diagnosis.verdict, diagnosis.found

    key, _ = await world.engine.access.create_key("ann", expires_in=timedelta(days=20))

    assert await found() == ("ok", "none expires soon")
    world.clock.advance(seconds=17 * 86_400)
    assert await found() == ("warning", f"expire soon: ann ({key.id}) in 3 d")


async def test_deleting_a_tenant_revokes_its_keys_and_ends_its_sessions(world: World) -> None:
    _, secret = await world.engine.access.create_key("acme's", tenant_id="acme")
    await world.engine.access.create_key("birch's", tenant_id="birch")
    async with client_of(world.engine, secret) as client, client_of(world.engine) as browser:
        await browser.post("/login", data={"key": secret})
        new = {"provider_slug": "github", "external_id": "a-1"}
        await client.post("/v1/connections", json=new, headers={"Idempotency-Key": "1"})

        assert await world.engine.tenants.delete("acme") == 1

        assert (await client.get("/v1/stats")).status_code == 401
        assert (await browser.get("/v1/stats")).status_code == 401
    keys = {key.name: key.status for key in await world.engine.access.list_keys()}
    assert keys == {"acme's": "revoked", "birch's": "active"}
    assert await world.sql("SELECT FROM {schema}.api_sessions") == []
    assert await world.sql("SELECT FROM {schema}.api_requests") == []  # it held acme's answer
    assert await world.engine.tenants.delete("acme") == 0


async def test_a_tenants_keys_are_refused_before_its_rows_go(world: World) -> None:
    _, secret = await world.engine.access.create_key("acme's", tenant_id="acme")
    connection = await world.connection(tenant="acme")
    async with world.locked_table("connections"):
        deleting = asyncio.create_task(world.engine.tenants.delete("acme"))
        await world.blocked_session()

        assert await world.engine.access.authenticate(secret) is None
    await deleting

    with pytest.raises(LookupError):
        await world.engine.connections.get(connection.id)
