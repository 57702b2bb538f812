"""`/v1/pauses`: the switches of tenants and providers, for operators."""

import httpx2
import pytest

from support.http import client_of
from support.world import World

Client = httpx2.AsyncClient


@pytest.mark.parametrize("whose", [{"tenant_id": "a/../b c"}, {"provider_slug": "github"}])
async def test_an_operator_pauses_and_resumes(operator: Client, whose: dict[str, str]) -> None:
    made = await operator.put("/v1/pauses", json={**whose, "paused": True, "reason": "unpaid"})
    listed = await operator.get("/v1/pauses")
    ended = await operator.put("/v1/pauses", json={**whose, "paused": False})

    [one] = made.json()["items"]
    assert {**one, **whose, "reason": "unpaid"} == one
    assert listed.json() == made.json()
    assert ended.json()["items"] == []


async def test_a_pause_without_one_name_is_refused(operator: Client) -> None:
    for whose in ({}, {"tenant_id": "acme", "provider_slug": "github"}):
        answer = await operator.put("/v1/pauses", json={**whose, "paused": True})
        assert answer.status_code == 422, answer.text


async def test_tenants_reach_no_switch(world: World) -> None:
    _, secret = await world.engine.access.create_key("acme's", tenant_id="acme", scope="admin")
    async with client_of(world.engine, secret) as client:
        assert (await client.get("/v1/pauses")).status_code == 403
        body = {"tenant_id": "acme", "paused": False}
        assert (await client.put("/v1/pauses", json=body)).status_code == 403
