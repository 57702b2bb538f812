"""Every route that changes something leaves its rows in the audit; a new one must be decided."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest

from support.http import client_of
from support.routes import methods_of, routes_of
from support.world import World
from syncline.api.auth import COOKIE, Principal
from syncline.keyring import new_key
from syncline.model import ConnectionFilter
from syncline.services.bulk import BulkRequest

pytestmark = pytest.mark.engine(secret_keys=new_key("k1"))

CANARY = "canary-4711"
NEW = {"tenant_id": "acme", "provider_slug": "github", "external_id": "new"}
TYPED = {**NEW, "config": '{"a": 1}', "auth": "none"}
SECRET = {"credentials": {"token": CANARY}}
ONE, JOB = "/v1/connections/{connection_id}", "/v1/jobs/{job_id}"
CHANGING = {"POST", "PUT", "PATCH", "DELETE"}


@dataclass(frozen=True)
class Case:
    """What is sent, on which of the things, and the actions that the audit then holds."""

    actions: list[str]
    body: dict[str, Any] | None = None
    of: dict[str, str] = field(default_factory=dict)


CASES: dict[tuple[str, str], Case] = {
    ("POST", "/v1/connections"): Case(["connections.create"], NEW | SECRET),
    ("POST", "/v1/connections/bulk"): Case(["connections.create"], {"connections": [NEW]}),
    ("PATCH", ONE): Case(["connections.edit"], {"interval_seconds": 600}),
    ("DELETE", ONE): Case(["connections.delete"]),
    ("POST", f"{ONE}/pause"): Case(["connections.pause"], {"reason": f"password={CANARY}"}),
    ("POST", f"{ONE}/resume"): Case(["connections.resume"], of={"connection_id": "paused"}),
    ("POST", f"{ONE}/sync"): Case(["connections.sync"]),
    ("PUT", f"{ONE}/credentials"): Case(["credentials.set"], SECRET),
    ("DELETE", f"{ONE}/credentials"): Case(["credentials.clear"]),
    ("POST", f"{JOB}/retry"): Case(["jobs.retry"]),
    ("POST", f"{JOB}/cancel"): Case(["jobs.cancel"], of={"job_id": "queued"}),
    ("POST", "/v1/connections/actions"): Case(
        ["bulk.start"], {"action": "pause", "filter": {"tenant": "acme"}, "expected": 2}
    ),
    ("POST", "/v1/jobs/actions"): Case(
        ["bulk.start"], {"action": "cancel", "filter": {"status": "queued"}, "expected": 1}
    ),
    ("POST", "/v1/actions/{action_id}/cancel"): Case(["bulk.cancel"]),
    ("PUT", "/v1/tenants"): Case(["tenants.set_weight"], {"tenant_id": "acme", "weight": 2}),
    ("PUT", "/v1/pauses"): Case(["tenants.pause"], {"tenant_id": "acme", "paused": True}),
    ("PUT", "/v1/caps"): Case(["caps.set"], {"tenant_id": "acme", "max_running": 3}),
    ("PUT", "/v1/budgets/{scope}"): Case(["budgets.set"], {"calls": 100}),
    ("DELETE", "/v1/budgets/{scope}"): Case(["budgets.clear"]),
    ("POST", "/v1/keys"): Case(["keys.create"], {"name": "bob"}),
    ("DELETE", "/v1/keys/{key_id}"): Case(["keys.revoke"]),
    ("POST", "/connections/new"): Case(
        ["connections.create", "connections.sync"], {**TYPED, "sync": "yes"}
    ),
    ("POST", "/connections/{connection_id}/edit"): Case(
        ["connections.edit"], {"config": '{"a": 2}', "interval_seconds": "600"}
    ),
    ("POST", "/connections/{connection_id}/reconnect"): Case(
        ["credentials.set", "connections.sync"],
        {"auth": "token", "credentials.token.token": CANARY},
    ),
    ("POST", "/connections/bulk"): Case(
        ["connections.pause"], {"action": "pause", "ids": "{connection_id}"}
    ),
    ("POST", "/connections/{connection_id}/interval"): Case(
        ["connections.edit"], {"seconds": "600"}
    ),
    ("POST", "/connections/{connection_id}/{action}"): Case(
        ["connections.pause"], {}, {"action": "pause"}
    ),
    ("POST", "/jobs/{job_id}/{action}"): Case(["jobs.retry"], {}, {"action": "retry"}),
    ("POST", "/actions/new"): Case(["bulk.start"], {"expected": "3"}),
    ("POST", "/actions/{action_id}/cancel"): Case(["bulk.cancel"], {}),
    ("POST", "/pause"): Case(["tenants.pause"], {"tenant": "acme", "paused": "yes"}),
}
SESSIONS = {("POST", "/login"), ("POST", "/logout")}  # below


@pytest.fixture
async def things(world: World) -> dict[str, str]:
    """Two connections, with a job each, and one of everything else that a route may name."""
    engine = world.engine
    connection, paused = await world.connection(), await world.connection()
    await engine.connections.pause(paused.id)
    failed = await world.job(connection, status="failed", finished_at=world.clock())
    queued = await world.job(await world.connection(tenant="birch"), job_type="full")
    await engine.budgets.set("spare", calls=5)
    pause = BulkRequest("pause", ConnectionFilter(tenant_id="acme", status="active"))
    bulk = await engine.bulk.start(pause, expected=1)
    key, _ = await engine.access.create_key("spare")
    ids = {"connection_id": connection.id, "paused": paused.id, "job_id": failed, "queued": queued}
    ids |= {"key_id": key.id, "action_id": bulk.id}
    return {name: str(id_) for name, id_ in ids.items()} | {"scope": "spare"}


@pytest.fixture
async def operator(world: World, things: dict[str, str]) -> AsyncIterator[httpx2.AsyncClient]:
    _, secret = await world.engine.access.create_key("ann")
    await world.sql("DELETE FROM {schema}.audit")
    async with client_of(world.engine, secret) as client:
        yield client


async def audit_of(world: World) -> list[Any]:
    return list(await world.sql("SELECT * FROM {schema}.audit ORDER BY acted_at, id"))


async def test_every_changing_route_was_decided(world: World) -> None:
    found = {
        (method, route.path)
        for route in routes_of(world.engine)
        for method in methods_of(route) & CHANGING
    }

    assert found - SESSIONS == CASES.keys(), "say here what each leaves in the audit"


@pytest.mark.parametrize("place", CASES, ids=" ".join)
async def test_it_leaves_its_rows_with_who_did_it(
    world: World, operator: httpx2.AsyncClient, things: dict[str, str], place: tuple[str, str]
) -> None:
    method, case = place[0], CASES[place]
    path = place[1].format(**{**things, **{k: things.get(v, v) for k, v in case.of.items()}})
    path += "?action=pause" if path == "/actions/new" else ""
    sent: dict[str, Any] = {}
    if case.body is not None:
        text = json.dumps(case.body).replace("{connection_id}", things["connection_id"])
        sent = {"json" if path.startswith("/v1/") else "data": json.loads(text)}

    answer = await operator.request(method, path, **sent)

    assert answer.status_code < 400, answer.text
    rows = await audit_of(world)
    assert sorted(row["action"] for row in rows) == sorted(case.actions)
    assert {(row["actor_kind"], row["actor"]) for row in rows} == {("key", "ann")}
    assert all(row["key_id"] is not None and row["address"] for row in rows)
    assert CANARY not in str(rows)


@pytest.mark.parametrize("place", CASES, ids=" ".join)
async def test_what_is_refused_leaves_none(world: World, place: tuple[str, str]) -> None:
    """With ids of nothing, and bodies of nothing."""
    nothing = "00000000-0000-0000-0000-000000000001"
    names = ("connection_id", "job_id", "key_id", "action_id")
    path = place[1].format(**dict.fromkeys(names, nothing), scope="spare", action="pause")
    _, secret = await world.engine.access.create_key("ann")
    await world.sql("DELETE FROM {schema}.audit")
    async with client_of(world.engine, secret) as client:
        answer = await client.request(place[0], path, json={})

    assert answer.status_code >= 400
    assert await audit_of(world) == []


async def test_a_session_and_what_it_does_are_recorded(
    world: World, things: dict[str, str]
) -> None:
    key, secret = await world.engine.access.create_key("ann")
    await world.sql("DELETE FROM {schema}.audit")
    async with client_of(world.engine) as browser:
        assert (await browser.post("/login", data={"key": "wrong"})).status_code == 401
        await browser.post("/login", data={"key": secret})
        csrf = Principal("", session=browser.cookies[COOKIE]).csrf_token
        await browser.post(f"/connections/{things['connection_id']}/pause", data={"csrf": csrf})
        await browser.post("/logout", data={"csrf": csrf})
    await world.engine._key_uses.save()

    rows = await audit_of(world)
    assert sorted((row["action"], row["actor"]) for row in rows) == [
        ("connections.pause", "ann"),
        ("sessions.begin", "ann"),
        ("sessions.end", "ann"),
        ("sessions.refuse", "unknown"),
    ]
    assert {row["key_id"] for row in rows} == {key.id, None}
    assert secret.rpartition("_")[2] not in str(rows)


async def test_a_tenants_key_reads_what_happened_to_its_own_rows(
    world: World, operator: httpx2.AsyncClient, things: dict[str, str]
) -> None:
    await operator.post(f"/v1/connections/{things['connection_id']}/pause")
    await operator.post("/v1/keys", json={"name": "operators-own"})
    _, secret = await world.engine.access.create_key("acme's", tenant_id="acme")
    async with client_of(world.engine, secret) as acme:
        await acme.post(f"/v1/connections/{things['connection_id']}/resume")
        whole = await acme.get("/v1/audit")
        other = await acme.get("/v1/audit?tenant=birch")
        named = await acme.get("/v1/audit?actor=ann")
    seen = [(one["action"], one["actor_kind"], one["actor"]) for one in whole.json()["items"]]

    assert sorted(seen) == [
        ("connections.pause", "operator", "operator"),
        ("connections.resume", "tenant_key", "acme's"),
        ("keys.create", "operator", "operator"),
    ]
    assert (other.status_code, named.json()["items"]) == (403, [])
    assert "ann" not in [one["actor"] for one in whole.json()["items"]]


async def test_the_pages_show_who_changed_what(
    world: World, operator: httpx2.AsyncClient, things: dict[str, str]
) -> None:
    one = f"/connections/{things['connection_id']}"
    await operator.post(f"/v1{one}/pause", json={"reason": "<b>their quota</b>"})

    pages = [await operator.get(path) for path in ("/audit", "/audit?actor=ann", one)]
    empty = await operator.get("/audit?actor=somebody")

    for page in pages:
        assert page.status_code == 200
        assert "connections.pause" in page.text
        assert "&lt;b&gt;their quota" in page.text
    assert "Nothing matches" in empty.text
