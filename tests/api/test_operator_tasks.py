"""The tasks of an operator, by API; `tests/browser/test_operator_tasks.py` has them as pages."""

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import httpx2
import pytest

from support.http import client_of
from support.operator_tasks import FAILED_JOB, FRUITFUL_JOB, STATEMENTS, WORKER
from syncline import Engine, Settings
from syncline.keyring import new_key

ADDED = {"tenant_id": "acme", "provider_slug": "demo", "external_id": "bakery"}


@pytest.fixture
async def cell(database_url: str) -> AsyncIterator[httpx2.AsyncClient]:
    session = await asyncpg.connect(database_url)
    for statement in (WORKER, *STATEMENTS):
        await session.execute(statement.replace("{schema}", "syncline"))
    await session.close()
    settings = Settings(database_url=database_url, secret_keys=new_key("k1"))
    async with Engine(settings) as engine, client_of(engine) as client:
        yield client


async def get(cell: httpx2.AsyncClient, path: str, **query: Any) -> Any:
    answer = await cell.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def id_of(cell: httpx2.AsyncClient, prefix: str) -> str:
    [found] = (await get(cell, "/v1/connections", prefix=prefix))["items"]
    return str(found["id"])


async def test_why_does_it_not_sync(cell: httpx2.AsyncClient) -> None:
    found = await get(cell, f"/v1/connections/{await id_of(cell, 'acme/revoked')}/explanation")
    assert found["reason"] == "needs_reauth"
    assert "the grant was revoked" in found["summary"]


async def test_which_provider_fails_since_when_and_whom(cell: httpx2.AsyncClient) -> None:
    items = (await get(cell, "/v1/providers"))["items"]
    [found] = [one for one in items if one["provider_slug"] == "mailbox"]
    assert (found["health"], found["affected_connections"], found["affected_tenants"]) == (
        "down",
        1,
        1,
    )
    assert found["troubled_since"]


async def test_pause_a_tenant(cell: httpx2.AsyncClient) -> None:
    body = {"tenant_id": "acme", "paused": True, "reason": "asked by them"}
    answer = await cell.put("/v1/pauses", json=body)
    assert answer.status_code == 200, answer.text
    found = await get(cell, f"/v1/connections/{await id_of(cell, 'acme/odd')}/explanation")
    assert found["reason"] == "tenant_paused"


async def test_what_a_run_brought(cell: httpx2.AsyncClient) -> None:
    found = await get(cell, "/v1/signals", job_id=FRUITFUL_JOB)
    assert [one["kind"] for one in found["items"]] == 2 * ["release_published"]


async def test_the_slowest(cell: httpx2.AsyncClient) -> None:
    found = await get(cell, "/v1/jobs", order="slowest")
    assert found["items"][0]["id"] == FRUITFUL_JOB


async def test_retry_all_failures_of_a_provider(cell: httpx2.AsyncClient) -> None:
    wanted = {"action": "retry", "filter": {"provider": "github", "status": "failed"}}
    seen = await cell.post("/v1/jobs/actions", json=wanted | {"preview": True})
    assert seen.status_code in (200, 202), seen.text
    done = await cell.post("/v1/jobs/actions", json=wanted | {"expected": seen.json()["count"]})
    assert done.status_code == 202, done.text
    assert (await get(cell, f"/v1/actions/{done.json()['id']}"))["action"]


async def test_who_changed_it(cell: httpx2.AsyncClient) -> None:
    id_ = await id_of(cell, "acme/odd")
    assert (await cell.post(f"/v1/connections/{id_}/pause")).status_code == 200
    [found] = (await get(cell, "/v1/audit", connection=id_))["items"]
    assert found["action"] == "connections.pause"


async def test_add_and_change_an_interval(cell: httpx2.AsyncClient) -> None:
    added = await cell.post("/v1/connections", json=ADDED)
    assert added.status_code == 201, added.text
    path = f"/v1/connections/{added.json()['id']}"
    assert (await cell.patch(path, json={"interval_seconds": 300})).status_code == 200
    assert (await get(cell, path))["metadata"]["sync"]["interval_seconds"] == 300


async def test_reconnect(cell: httpx2.AsyncClient) -> None:
    path = f"/v1/connections/{await id_of(cell, 'acme/revoked')}"
    answer = await cell.put(f"{path}/credentials", json={"credentials": {"token": "new"}})
    assert answer.status_code in (200, 204), answer.text
    assert (await get(cell, path))["status"] == "active"


async def test_how_much_of_a_quota_is_used(cell: httpx2.AsyncClient) -> None:
    found = (await get(cell, "/v1/budgets"))["items"]
    assert {"github": 5000}.items() <= {one["scope"]: one["calls"] for one in found}.items()


async def test_the_load_of_workers(cell: httpx2.AsyncClient) -> None:
    [worker] = (await get(cell, "/v1/workers"))["items"]
    assert (worker["host"], worker["busy"], worker["slots"]) == ("sync-1.eu", 9, 64)


async def test_the_log_and_the_calls_of_a_run(cell: httpx2.AsyncClient) -> None:
    [found] = (await get(cell, f"/v1/jobs/{FAILED_JOB}/attempts"))["items"]
    assert found["trace"] == "in github.py, line 7"
    assert [one["status"] for one in found["calls"]] == [410]


async def test_the_backlog_of_a_day(cell: httpx2.AsyncClient) -> None:
    found = await get(cell, "/v1/stats/history", period="24h")
    assert {one["backlog"] for one in found["points"]} == {0, 4321}
