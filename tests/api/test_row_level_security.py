"""Requests run as the role for which the database itself keeps tenants apart."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import asyncpg
import httpx2
import pytest
from starlette.routing import BaseRoute, Mount, Route

from support.databases import Databases
from support.fakes import eventually
from support.http import client_of
from support.world import World, open_world
from syncline import Connection, Engine, SyncResult
from syncline.api.app import create_app
from syncline.model import START, ConnectionFilter, SignalFilter
from syncline.services.bulk import BulkRequest
from syncline.services.edits import Edit

Client = httpx2.AsyncClient
ROLE = "syncline_api"
TABLES = ("connections", "sync_jobs", "signals", "credentials", "api_requests", "workers")
OTHERS = (
    *("audit", "bulk_actions", "schedulers", "tenant_usage", "job_attempts"),
    *("figures", "figure_reports"),
)
ALL_TABLES = ", ".join(f"syncline.{table}" for table in (*TABLES, *OTHERS))
NEW = {"tenant_id": "acme", "provider_slug": "github", "external_id": "new"}
BODIES: dict[str, Any] = {
    "create_connection": NEW,
    "create_connections": {"connections": [NEW]},
    "edit_connection": {"config": {}},
    "set_credentials": {"credentials": {"token": "x"}},
    "act_on_connections": {"action": "pause", "filter": {}, "expected": 0},
    "act_on_jobs": {"action": "retry", "filter": {"status": "failed"}, "preview": True},
}
# They read nothing of any tenant's: probes, metrics, the description, signing in and out, files.
# Keys and budgets are an operator's, and out of the role's reach.
WITHOUT_ROWS: tuple[str, ...] = (
    "/healthz",
    "/readyz",
    "/metrics",
    "/docs",
    "/openapi.json",
    "/login",
    "/logout",
)
WITHOUT_ROWS += ("/style.css", "/icon.svg", "/theme.js", "/dashboard.js", "/v1/keys")
WITHOUT_ROWS += ("/v1/budgets", "/v1/tenants", "/v1/caps", "/v1/providers/", "/v1/pauses")
WITHOUT_ROWS += ("/connections/new", "/pause")  # what workers serve, and the form for it
FOLLOWING = ("tail_signals", "follow_signals")


@pytest.fixture
def engine_settings() -> dict[str, Any]:
    from syncline.keyring import new_key

    return {"secret_keys": new_key("k1")}


async def things_of(world: World, tenant: str) -> dict[str, Any]:
    """Return ids of a tenant's things, by the names that routes give them."""
    connection = await world.connection(tenant=tenant)
    await world.engine.connections.set_credentials(connection.id, {"token": tenant})
    job = await world.job(connection, status="failed", finished_at=world.clock())
    rows = await world.sql(
        "INSERT INTO {schema}.signals (tenant_id, provider_slug, connection_id, kind)"
        " VALUES ($2, 'github', $1, 'secret') RETURNING id",
        connection.id,
        tenant,
    )
    signal = rows[0]["id"]
    return {
        "connection_id": connection.id,
        "job_id": job,
        "signal_id": signal,
        "action": "retry",
        "scope": "app",
        "provider_slug": "github",
        "action_id": await _action_of(world, tenant),
    }


async def _action_of(world: World, tenant: str) -> UUID:
    request = BulkRequest("pause", ConnectionFilter(external_id_prefix="none"))
    engine = world.engine.for_request(tenant)
    begun = await engine.bulk.start(request, expected=0, tenant_id=tenant)
    return begun.id


async def rows_of(world: World, tenant: str) -> list[Any]:
    return [
        await world.sql(
            f"SELECT t::text FROM {{schema}}.{table} t WHERE tenant_id = $1 ORDER BY 1", tenant
        )
        for table in TABLES
        if table != "workers"
    ]


def routes_of(engine: Engine) -> list[Route]:
    def walk(found: Iterable[BaseRoute]) -> Iterator[Route]:
        for route in found:
            if isinstance(route, Route):
                yield route
            elif not isinstance(route, Mount):
                yield from walk(route.original_router.routes)  # type: ignore[attr-defined]

    found = walk(create_app(engine).routes)
    return [one for one in found if not one.path.startswith(WITHOUT_ROWS)]


@pytest.mark.parametrize("tenant", ["acme", None], ids=["a tenant's key", "an operator's"])
async def test_every_route_and_page_runs_as_the_role(world: World, tenant: str | None) -> None:
    """The role's rights are taken away: what still answers did not run as the role."""
    _, key = await world.engine.access.create_key("somebody", tenant_id=tenant)

    own = await things_of(world, "acme")
    before = await walk(world, key, own, skipped=("tail_signals",))  # which would not end
    own = await things_of(world, "acme")  # most of the others are gone now
    await world.sql(f"REVOKE ALL ON {ALL_TABLES} FROM {ROLE}")
    try:
        async with asyncio.timeout(60):
            after = await walk(world, key, own)
    finally:
        await world.engine.migrate()

    assert len(after) > 25
    assert {place: status for place, status in before.items() if status >= 500} == {}
    for_operators = 403 if tenant is not None else None
    answered = {place: status for place, status in after.items() if status != 500}
    assert {place: status for place, status in answered.items() if status != for_operators} == {}


async def walk(
    world: World, key: str, own: dict[str, Any], skipped: tuple[str, ...] = ()
) -> dict[tuple[str, str], int]:
    """Return how every route and page answers, asked for things that are there."""
    found = {}
    form = {"ids": own["connection_id"], "action": "pause", "seconds": "300", "expected": "0"}
    async with client_of(world.engine, key) as client:
        for route in routes_of(world.engine):
            own["action"] = "retry" if "job_id" in route.path else "pause"
            path = re.sub(r"{(\w+)}", lambda match: str(own[match[1]]), route.path)
            path += "?position=start" if route.name in FOLLOWING else ""
            path += "?action=pause" if path == "/actions/new" else ""
            is_api = path.startswith("/v1/")
            body = {"json": BODIES.get(route.name)} if is_api else {"data": form}
            for method in set(route.methods or ()) - {"HEAD"}:
                if route.name not in skipped:
                    options = body if is_api or method == "POST" else {}
                    answer = await client.request(method, path, **options)
                    found[method, route.path] = answer.status_code
    return found


async def test_a_service_that_forgets_the_tenant_shows_nothing_foreign(world: World) -> None:
    """The very calls that routes make, but without the tenant that routes give them."""
    own, foreign = await things_of(world, "acme"), await things_of(world, "birch")
    engine = world.engine.for_request("acme")

    assert {one.tenant_id for one in await engine.connections.list()} == {"acme"}
    assert {one.tenant_id for one in await engine.jobs.list()} == {"acme"}
    assert {one.tenant_id for one in await engine.signals.list()} == {"acme"}
    followed = await engine.signals.follow(SignalFilter(), position=START, limit=10)
    assert {one.tenant_id for one in followed.signals} == {"acme"}
    assert await engine.stats.tenants() == ["acme"]
    assert (await engine.stats.overview()).counts.connections.count == 1
    [provider] = (await engine.stats.providers()).items
    assert provider.connections == {"active": 1}
    for read in (
        engine.connections.get(foreign["connection_id"]),
        engine.jobs.get(foreign["job_id"]),
        engine.signals.get(foreign["signal_id"]),
        engine.explain(foreign["connection_id"]),
    ):
        with pytest.raises(LookupError):
            await read
    assert (await engine.connections.get(own["connection_id"])).tenant_id == "acme"


async def test_a_service_that_forgets_the_tenant_changes_nothing_foreign(world: World) -> None:
    foreign = await things_of(world, "birch")
    connection, job = foreign["connection_id"], foreign["job_id"]
    before = await rows_of(world, "birch")
    engine = world.engine.for_request("acme")

    for change in (
        engine.connections.pause(connection),
        engine.connections.resume(connection),
        engine.connections.edit(connection, Edit(config={"stolen": True})),
        engine.connections.set_interval(connection, 300),
        engine.connections.set_credentials(connection, {"token": "stolen"}),
        engine.connections.set_credentials(connection, None),
        engine.connections.delete(connection),
        engine.trigger(connection),
        engine.jobs.retry(job),
        engine.jobs.cancel(job),
    ):
        with pytest.raises(LookupError):
            await change
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
        await engine.connections.create(
            tenant_id="birch", provider_slug="github", external_id="planted"
        )
    assert await rows_of(world, "birch") == before
    assert before != [[]] * len(before)


async def test_what_runs_beside_requests_sees_everybody(world: World) -> None:
    """The loops of the same process, also what a request wakes, go on as the engine's own role."""
    ran: list[str] = []

    def note(connection: Connection, _cursor: Any) -> SyncResult:
        ran.append(connection.tenant_id)
        return SyncResult()

    world.connector.script += [note] * 4
    own, foreign = await things_of(world, "acme"), await things_of(world, "birch")
    _, key = await world.engine.access.create_key("acme", tenant_id="acme")
    async with client_of(world.engine, key) as client:
        sync = f"/v1/connections/{own['connection_id']}/sync"
        assert (await client.post(sync)).status_code == 202
        await world.engine.trigger(foreign["connection_id"])
        running = asyncio.create_task(world.engine.run(handle_signals=False))
        await eventually(lambda: {"acme", "birch"} <= set(ran))
        for _ in range(5):
            assert (await client.get("/v1/connections")).status_code == 200
        world.engine.stop()
        assert await running
    assert len(await world.engine.connections.list()) == 2
    jobs = await world.engine.jobs.list(connection_id=foreign["connection_id"])
    assert {one.status for one in jobs} == {"failed", "succeeded"}


@pytest.fixture
async def without_role(databases: Databases) -> AsyncIterator[World]:
    """A world on a database whose owner may not make the role, and was given none."""
    server = databases.server(databases_mode())
    url = server.create_database()
    admin = await asyncpg.connect(url)
    await admin.execute("CREATE ROLE small_owner LOGIN")
    await admin.execute(f'GRANT CREATE ON DATABASE "{urlsplit(url).path[1:]}" TO small_owner')
    async with open_world(re.sub(r"//[^@/]*@", "//small_owner@", url), schema="small") as world:
        await world.engine.migrate()
        yield world
    await admin.execute("DROP OWNED BY small_owner CASCADE; DROP ROLE small_owner")
    await admin.close()
    server.drop_database(url)


def databases_mode() -> Any:
    from support.databases import Mode

    return Mode("embedded")


async def test_everything_works_without_the_role(without_role: World) -> None:
    engine = without_role.engine
    assert (await engine.api_role()).statements[0] == 'CREATE ROLE "small_api" NOLOGIN'
    _, operators = await engine.access.create_key("ann")
    _, tenants = await engine.access.create_key("acme", tenant_id="acme")
    async with client_of(engine, tenants) as acme, client_of(engine, operators) as operator:
        for client, name in ((acme, "a"), (operator, "b")):
            new = {**NEW, "external_id": name}
            added = await client.post("/v1/connections", json=new, headers={"Idempotency-Key": "1"})
            assert added.status_code == 201
            one = f"/v1/connections/{added.json()['id']}"
            assert (await client.post(f"{one}/sync")).status_code == 202
            assert (await client.post(f"{one}/pause")).status_code == 200
            assert len((await client.get("/v1/connections")).json()["items"]) == 1
            assert (await client.delete(one)).status_code == 204
        for page in ("/", "/connections", "/jobs", "/workers"):
            assert (await operator.get(page)).status_code == 200
