"""`/v1/connections/actions` and `/v1/jobs/actions`: act on everything that a filter matches."""

from typing import Any

import httpx2
import pytest

from support.http import client_of
from support.world import World

Client = httpx2.AsyncClient
CONNECTIONS, JOBS = "/v1/connections/actions", "/v1/jobs/actions"
PAUSE: dict[str, Any] = {"action": "pause", "filter": {"provider": "github"}}


async def carry_out(world: World) -> None:
    while await world.engine._upkeep.bulk.run():
        pass


async def test_a_preview_counts_and_the_action_is_followed_to_its_end(
    world: World, operator: Client
) -> None:
    for _ in range(12):
        await world.connection()
    revoked = await world.connection(status="revoked")

    preview = await operator.post(CONNECTIONS, json={**PAUSE, "preview": True})
    begun = await operator.post(
        CONNECTIONS, json={**PAUSE, "expected": preview.json()["count"], "reason": "unpaid"}
    )
    await carry_out(world)
    ended = await operator.get(f"/v1/actions/{begun.json()['id']}")

    assert (preview.status_code, preview.json()["state"]) == (200, "preview")
    assert (preview.json()["count"], preview.json()["is_exact"]) == (13, True)
    assert len(preview.json()["first_connections"]) == 10
    assert (begun.status_code, begun.json()["state"]) == (202, "running")
    shown = ended.json()
    assert (shown["state"], shown["done"], shown["refused"]) == ("done", 12, 1)
    assert shown["refused_first"] == [{"id": str(revoked.id), "reason": "is revoked"}]
    assert (await operator.get("/v1/actions")).json()["items"] == [shown]


async def test_failed_jobs_of_a_provider_are_retried(world: World, operator: Client) -> None:
    connection = await world.connection()
    await world.job(connection, status="failed", finished_at=world.clock())
    body = {"action": "retry", "filter": {"provider": "github", "status": "failed"}}

    preview = await operator.post(JOBS, json={**body, "preview": True})
    await operator.post(JOBS, json={**body, "expected": 1})
    await carry_out(world)

    assert [one["status"] for one in preview.json()["first_jobs"]] == ["failed"]
    assert await world.pending(connection)


async def test_it_is_begun_once_for_one_idempotency_key(world: World, operator: Client) -> None:
    await world.connection()
    once = {"Idempotency-Key": "one"}

    first = await operator.post(CONNECTIONS, json={**PAUSE, "expected": 1}, headers=once)
    again = await operator.post(CONNECTIONS, json={**PAUSE, "expected": 1}, headers=once)

    assert again.json() == first.json()
    assert len((await operator.get("/v1/actions")).json()["items"]) == 1


async def test_a_count_that_no_longer_holds_is_a_conflict(world: World, operator: Client) -> None:
    for _ in range(8):
        await world.connection()

    answer = await operator.post(CONNECTIONS, json={**PAUSE, "expected": 1})

    assert answer.status_code == 409
    assert "matches 8 now, not 1" in answer.text


async def test_an_action_is_cancelled_once(world: World, operator: Client) -> None:
    await world.connection()
    begun = await operator.post(CONNECTIONS, json={**PAUSE, "expected": 1})
    address = f"/v1/actions/{begun.json()['id']}/cancel"

    assert (await operator.post(address)).json()["state"] == "cancelled"
    assert (await operator.post(address)).status_code == 409


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        (CONNECTIONS, PAUSE, "expected"),
        (CONNECTIONS, {**PAUSE, "expected": -1}, "expected"),
        (CONNECTIONS, {"action": "delete", "filter": {}, "expected": 1}, "action"),
        (CONNECTIONS, {"action": "pause", "expected": 1}, "filter"),
        (CONNECTIONS, {"action": "pause", "filter": {"state": "x"}, "expected": 1}, "state"),
        (JOBS, {"action": "retry", "filter": {}, "expected": 1}, "status"),
        (JOBS, {"action": "cancel", "filter": {"status": "failed"}, "expected": 1}, "status"),
        (
            CONNECTIONS,
            {"action": "set_interval", "filter": {}, "interval_seconds": 5, "expected": 1},
            "interval_seconds",
        ),
    ],
)
async def test_what_makes_no_sense_names_the_field(
    operator: Client, path: str, body: dict[str, Any], field: str
) -> None:
    answer = await operator.post(path, json=body)

    assert answer.status_code == 422
    assert field in answer.text


async def test_a_tenants_key_acts_on_its_own_rows_alone(world: World) -> None:
    mine, foreign = await world.connection(), await world.connection(tenant="birch")
    _, secret = await world.engine.access.create_key("acme's", tenant_id="acme", scope="operate")
    async with client_of(world.engine, secret) as client:
        body = {"action": "pause", "filter": {}}
        preview = await client.post(CONNECTIONS, json={**body, "preview": True})
        begun = await client.post(CONNECTIONS, json={**body, "expected": 1})
        named = {"action": "pause", "filter": {"tenant": "birch"}, "expected": 1}
        assert (await client.post(CONNECTIONS, json=named)).status_code == 403
    await carry_out(world)

    assert preview.json()["count"] == 1
    assert begun.status_code == 202
    assert (await world.engine.connections.get(mine.id)).status == "paused"
    assert (await world.engine.connections.get(foreign.id)).status == "active"
