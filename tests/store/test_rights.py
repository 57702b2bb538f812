"""The rights that the schema's page lists are enough, and `doctor` names each that is missing."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any
from uuid import UUID

import httpx2
import pytest

from support.databases import Databases, Mode
from support.fakes import eventually
from support.http import client_of
from support.rights import as_role, documented_roles
from support.world import at
from syncline import Engine, Settings, Signal, SyncResult
from syncline.keyring import new_key
from syncline.model import START, JobFilter, SignalFilter
from syncline.policy.doctor import Verdict
from syncline.store.checks.doctor import NEEDED
from syncline.testing import ManualClock, ScriptedConnector

SEEN = Signal("seen", at("11:00"), {"n": 1}, dedupe_key="1")
KEPT_BY_THE_API = ("api_keys", "api_sessions", "api_requests")
KEYS = (new_key("k1"), new_key("k2"))


@pytest.fixture
def owners_url(databases: Databases, mode: Mode) -> Iterator[str]:
    with databases.lend(mode, "syncline") as url:
        yield url


@pytest.fixture
async def owner(owners_url: str) -> AsyncIterator[Any]:
    """The owner's session on a migrated database in which the documented roles exist."""
    async with (
        documented_roles(owners_url) as owner,
        Engine(Settings(database_url=owners_url)) as engine,
    ):
        await engine.migrate()  # which gives back what requests need of that
        yield owner


@pytest.fixture
def connector() -> ScriptedConnector:
    return ScriptedConnector("tickets", [SyncResult([SEEN], 1, True), SyncResult([SEEN], 2)])


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(at("12:00"))


@pytest.fixture
async def engine(
    owners_url: str, owner: Any, connector: ScriptedConnector, clock: ManualClock
) -> AsyncIterator[Engine]:
    settings = Settings(
        database_url=as_role(owners_url, "syncline_app"),
        secret_keys=KEYS[0],
        retention={"jobs_days": 1, "signals_days": 1},
    )
    async with Engine(settings, [connector], clock) as engine:
        yield engine


async def test_the_documented_rights_serve_every_loop_and_command(
    engine: Engine, clock: ManualClock, connector: ScriptedConnector, owners_url: str
) -> None:
    connection = await engine.connections.create(
        tenant_id="acme",
        provider_slug="tickets",
        external_id="a-1",
        credentials={"token": "secret"},
    )
    assert (await engine.tick()).scheduled == 1
    assert await engine.run_due() == 2
    job = await engine.trigger(connection.id)
    connector.script.append(OSError("away"))
    assert await engine.run_due() == 1
    assert await engine.jobs.find(JobFilter(), ["queued"]) == [job.id]
    await engine.jobs.cancel(job.id)

    followed = await engine.signals.follow(SignalFilter(), position=START, limit=10)
    assert len(followed.signals) == 1
    assert await engine.verify() == []
    await engine.stats.activity()
    await engine.stats.history()
    await engine.explain(connection.id)
    for tenant_id in (None, "acme"):
        await engine.stats.overview(tenant_id=tenant_id)
        await engine.stats.freshness(tenant_id=tenant_id)
        await engine.stats.providers(tenant_id=tenant_id)
    await run_the_loops(engine, connector, connection.id)

    _, secret = await engine.access.create_key("ann")
    session = await engine.access.sign_in(secret)
    assert session is not None
    assert await engine.access.read_session(session) is not None
    await engine.access.sign_out(session)

    newer = Settings(
        database_url=as_role(owners_url, "syncline_app"), secret_keys=f"{KEYS[1]},{KEYS[0]}"
    )
    async with Engine(newer) as rotating:
        assert (await rotating.secrets.rotate()).done == 1
    clock.advance(days=3)
    pruned = await engine.prune()
    assert pruned.jobs > 0
    assert [line async for line in engine.tenants.export("acme")]
    await engine.tenants.delete("acme")


async def run_the_loops(engine: Engine, connector: ScriptedConnector, connection: UUID) -> None:
    running = asyncio.create_task(engine.run(handle_signals=False))
    connector.script.append(SyncResult(next_cursor=4))
    await engine.trigger(connection)
    await eventually(lambda: not connector.script)
    engine.stop()
    assert await running


async def test_the_documented_rights_serve_the_api_and_the_pages(engine: Engine) -> None:
    _, operators = await engine.access.create_key("ann")
    _, tenants = await engine.access.create_key("acme", tenant_id="acme")
    for key in (operators, tenants):
        async with client_of(engine, key) as client:
            await use_the_api(client)
    async with client_of(engine, operators) as client:
        for page in ("/", "/connections", "/jobs", "/signals", "/providers", "/workers"):
            assert (await client.get(page)).status_code == 200, page


async def use_the_api(client: httpx2.AsyncClient) -> None:
    new = {"provider_slug": "tickets", "external_id": "b-1", "tenant_id": "acme"}
    once = {"Idempotency-Key": "once"}

    async def call(status: int, method: str, path: str, **options: Any) -> Any:
        answer = await client.request(method, path, **options)
        assert answer.status_code == status, (method, path, answer.text)
        return answer.json() if answer.content else None

    secret = {"credentials": {"token": "a"}}
    added = await call(201, "POST", "/v1/connections", json={**new, **secret}, headers=once)
    assert await call(201, "POST", "/v1/connections", json={**new, **secret}, headers=once) == added
    await call(200, "POST", "/v1/connections/bulk", json={"connections": [new]})
    one = f"/v1/connections/{added['id']}"
    await call(200, "PATCH", one, json={"interval_seconds": 300, "config": {}, "cursor": 1})
    await call(200, "PUT", f"{one}/credentials", json={"credentials": {"token": "b"}})
    await call(200, "DELETE", f"{one}/credentials")
    job = await call(202, "POST", f"{one}/sync")
    await call(202, "POST", f"/v1/jobs/{job['id']}/retry", headers={"Idempotency-Key": "again"})
    await call(200, "POST", f"/v1/jobs/{job['id']}/cancel")
    await call(200, "POST", f"{one}/pause")
    await call(200, "POST", f"{one}/resume")
    for path in (one, f"{one}/explanation", f"/v1/jobs/{job['id']}"):
        await call(200, "GET", path)
    for path in ("connections", "jobs", "signals", "stats", "providers"):
        await call(200, "GET", f"/v1/{path}")
    await call(204, "DELETE", one)


async def test_doctor_names_each_right_that_is_missing(owner: Any, engine: Engine) -> None:
    found = {one.name: one for one in await engine.doctor.diagnose()}
    assert found["rights"].verdict == Verdict.OK
    assert found["row-level security"].verdict == Verdict.OK

    for table, rights in NEEDED.items():
        for right in rights:
            if right == "SELECT" and table not in ("signals", "credentials", *KEPT_BY_THE_API):
                continue  # without these nothing starts, and the error says why
            name = "UPDATE (job_id)" if right == "column UPDATE" else right
            await owner.execute(f"REVOKE {name} ON syncline.{table} FROM syncline_app")
            found = {one.name: one for one in await engine.doctor.diagnose()}
            assert found["rights"].verdict == Verdict.WARNING, (table, right)
            assert found["rights"].found == f"missing: {right} on {table}"
            await owner.execute(f"GRANT {name} ON syncline.{table} TO syncline_app")


async def test_a_run_that_may_not_read_its_credentials_says_so(owner: Any, engine: Engine) -> None:
    connection = await engine.connections.create(
        tenant_id="acme", provider_slug="tickets", external_id="a-1", credentials={"token": "x"}
    )
    await owner.execute("REVOKE ALL ON syncline.credentials FROM syncline_app")

    job = await engine.trigger(connection.id)
    await engine.run_due()

    error = (await engine.jobs.get(job.id)).error
    assert error is not None
    assert "permission denied for table credentials" in error["message"]
