"""Whoever has acme's key learns and changes nothing of birch, by any route, query or body.

The walk goes over every route that the application has, with a key and with a browser's session. A
new route, query parameter or body stops it until somebody says here what foreign thing it may name.
"""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from itertools import product
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import pytest
from fastapi.routing import APIRoute

from support.commands import CommandLine
from support.http import BASE, client_of
from support.routes import body_names, methods_of, query_names, routes_of
from support.world import World
from syncline.api.app import create_app
from syncline.api.auth import COOKIE, CSRF_HEADER, Principal
from syncline.keyring import new_key
from syncline.model import ConnectionFilter
from syncline.services.bulk import BulkRequest

pytestmark = pytest.mark.engine(secret_keys=new_key("k1"))

CANARY = "birch-canary"
ENDLESS = "/v1/signals/tail"
# These say the same to everybody, or nothing but whether a key is good.
SAME_FOR_ALL = {"/healthz", "/readyz", "/docs", "/openapi.json", "/login", "/logout"}
SAME_FOR_ALL |= {"/style.css", "/icon.svg", "/theme.js", "/dashboard.js"}
NEW = {"provider_slug": "github", "external_id": "x"}
# By the name of the route: bodies that name what is foreign, or would change it.
BODIES: dict[str, list[Any]] = {
    "create_connection": [{**NEW, "tenant_id": "birch"}, {**NEW, "external_id": f"{CANARY}-id"}],
    "create_connections": [
        {"connections": [{**NEW, "tenant_id": "birch"}]},
        {"connections": [NEW, {**NEW, "tenant_id": "birch", "external_id": f"{CANARY}-id"}]},
    ],
    "edit_connection": [{"config": {"stolen": True}}, {"cursor": {"stolen": True}}],
    "pause_connection": [{"reason": "stolen"}, None],
    "resume_connection": [None],
    "sync_connection": [{"job_type": "full", "priority": 10}, None],
    "set_credentials": [{"credentials": {"token": "stolen"}}],
    "forget_credentials": [None],
    "delete_connection": [None],
    "retry_job": [None],
    "cancel_job": [None],
    "create_key": [{"name": "x", "tenant_id": "birch"}, {"name": "x"}],
    "act_on_connections": [
        {"action": "pause", "filter": {"tenant": "birch"}, "expected": 1},
        {"action": "pause", "filter": {"prefix": CANARY}, "expected": 9},
        {"action": "sync", "filter": {"prefix": CANARY}, "preview": True},
    ],
    "act_on_jobs": [
        {"action": "retry", "filter": {"status": "failed", "tenant": "birch"}, "expected": 9},
        {"action": "retry", "filter": {"status": "failed"}, "preview": True},
    ],
    "cancel_action": [None],
    "set_pause": [{"tenant_id": "birch", "paused": True}, {"provider_slug": "x", "paused": True}],
    "set_weight": [{"tenant_id": "birch", "weight": 0.01}],
    "set_cap": [{"tenant_id": "birch", "max_running": 0}],
    "revoke_key": [None],
    "set_budget": [{"calls": 1}],
    "clear_budget": [None],
}
OPERATORS_ONLY = {
    *("/v1/budgets", "/v1/budgets/{scope}", "/v1/keys", "/v1/keys/{key_id}", "/v1/workers")
}
# By the name of a field in a form.
FORMS: dict[str, list[str]] = {
    "expected": ["1"],
    "paused": ["yes", "no"],
    "tenant": ["birch"],
    "provider": ["github"],
    "reason": ["stolen"],
    "action": ["sync", "pause", "resume", "full"],
    "ids": ["{connection_id}"],
    "here": ["/connections"],
    "seconds": ["60"],
}
# By the name of a query's parameter; `page` and `after` are an operator's, of the same listing.
QUERIES: dict[str, list[str]] = {
    "target": ["connections", "jobs"],
    "tenant": ["birch", "*", "acme,birch"],
    "connection": ["{connection_id}"],
    "job_id": ["{job_id}"],
    "job": ["{job_id}"],
    "provider": ["github"],
    "status": ["active", "failed"],
    "type": ["incremental"],
    "kind": [f"{CANARY}-kind"],
    "prefix": [CANARY, "b"],
    "q": [CANARY, "birch"],
    "order": ["id", "stalest", "oldest", "newest"],
    "since": ["2000-01-01T00:00:00Z"],
    "until": ["2100-01-01T00:00:00Z"],
    "page": ["{page}"],
    "after": ["{page}"],
    "show": ["{signal_id}"],
    "position": ["start"],
    "limit": ["500"],
    "wait": ["0"],
    "period": ["1h", "90d"],
    "actor": ["operator", "application", f"{CANARY}-name"],
    "action": ["connections.create", "pause", "retry"],
    "from": ["9000d"],
    "to": ["2100-01-01"],
    "keep_signals": ["true"],
    "next": ["/connections/{connection_id}"],
    "force": ["true"],
    "error_class": ["Transient"],
    "started_after": ["2000-01-01T00:00:00Z"],
    "started_before": ["2100-01-01T00:00:00Z"],
    "finished_after": ["2000-01-01T00:00:00Z"],
    "finished_before": ["2100-01-01T00:00:00Z"],
    "error": ["Transient"],
    "by": ["started", "made"],
    "min": ["0s"],
    "max": ["9999d"],
    "list": ["1"],
    "min_duration_seconds": ["0"],
    "max_duration_seconds": ["1000"],
    "occurred_since": ["2000-01-01T00:00:00Z"],
    "occurred_until": ["2100-01-01T00:00:00Z"],
    "payload": ["true", "false"],
    "only_set": ["true"],
}
Foreign = dict[str, str]


@pytest.fixture
async def foreign(world: World) -> Foreign:
    """What birch has, a canary in each of its texts; the ids by the names that routes give them."""
    connection = await world.engine.connections.create(
        tenant_id="birch",
        provider_slug="github",
        external_id=f"{CANARY}-id",
        config={"note": f"{CANARY}-config"},
        credentials={"token": f"{CANARY}-credential"},
    )
    await world.sql(
        "UPDATE {schema}.connections SET metadata = jsonb_set(metadata, '{sync,cursor}', $2)"
        " WHERE id = $1",
        *(connection.id, f'"{CANARY}-cursor"'),
    )
    job = await world.job(
        connection,
        status="failed",
        finished_at=world.clock(),
        error=f'{{"message": "{CANARY}-error", "class": "Transient"}}',
    )
    await world.sql(
        "INSERT INTO {schema}.job_attempts (job_id, ended_at, id, tenant_id, connection_id, worker,"
        " error, trace, calls, call_count, signals)"
        " VALUES ($1, now(), $1, 'birch', $2, $3, $4, $3, $4, 0, 0)",
        *(job, connection.id, f"{CANARY}-trace", f'["{CANARY}-call"]'),
    )
    [signal] = await world.sql(
        "INSERT INTO {schema}.signals (tenant_id, provider_slug, connection_id, kind, payload,"
        " dedupe_key) VALUES ('birch', 'github', $1, $2, $3, $4) RETURNING id",
        *(connection.id, f"{CANARY}-kind", f'{{"n": "{CANARY}-payload"}}', f"{CANARY}-key"),
    )
    key, _ = await world.engine.access.create_key(f"{CANARY}-name", tenant_id="birch")
    ids = {"connection_id": connection.id, "job_id": job, "signal_id": signal["id"]}
    ids["key_id"] = key.id
    birch = world.engine.for_request("birch").bulk
    wanted = ConnectionFilter(external_id_prefix=CANARY)
    action = await birch.start(BulkRequest("pause", wanted), expected=1, tenant_id="birch")
    ids["action_id"] = action.id
    await world.engine.budgets.set(f"{CANARY}-scope", calls=1_000_000)
    return {name: str(id_) for name, id_ in ids.items()} | {
        "action": "cancel",
        "scope": f"{CANARY}-scope",
        "provider_slug": f"{CANARY}-provider",
    }


class Asker:
    """acme's key in a header, or in a browser that signed in with it."""

    def __init__(self, client: httpx2.AsyncClient, session: str | None = None) -> None:
        self.client = client
        self.csrf = Principal("", session=session).csrf_token

    async def ask(self, method: str, path: str, **options: Any) -> httpx2.Response:
        headers = {CSRF_HEADER: self.csrf} if self.csrf else {}
        if "data" in options:
            options["data"] = {**options["data"], "csrf": self.csrf}
        return await self.client.request(method, path, headers=headers, **options)


@pytest.fixture(params=["key", "session"])
async def acme(world: World, request: pytest.FixtureRequest) -> AsyncIterator[Asker]:
    _, secret = await world.engine.access.create_key("acme's own", tenant_id="acme", scope="admin")
    await world.connection(tenant="acme")
    if request.param == "key":
        async with client_of(world.engine, secret) as client:
            yield Asker(client)
        return
    async with client_of(world.engine) as client:
        await client.post("/login", data={"key": secret})
        yield Asker(client, client.cookies[COOKIE])


async def everything_of_birch(world: World) -> dict[str, list[str]]:
    """Return all rows of birch, as text, by table: whichever table has a tenant."""
    tables = await world.sql(
        "SELECT table_name FROM information_schema.columns"
        " WHERE table_schema = $1 AND column_name = 'tenant_id' ORDER BY 1",
        world.settings.schema,
    )
    names = [row["table_name"] for row in tables]
    assert {"connections", "sync_jobs", "signals", "credentials", "api_keys"} <= set(names)
    found = {}
    for name in names:
        statement = f"SELECT t::text AS row FROM {{schema}}.{name} t WHERE tenant_id = 'birch'"
        found[name] = sorted(row["row"] for row in await world.sql(statement))
    return found


def paths_of(route: APIRoute, foreign: Foreign) -> Iterator[str]:
    """Yield a route's addresses with each foreign id where it takes one."""
    names = re.findall(r"{(\w+)}", route.path)
    assert set(names) <= foreign.keys(), f"{route.path}: give it a foreign id here"
    actions = ["cancel", "retry", "sync", "pause"] if "action" in names else [""]
    for action in actions:
        yield route.path.format(**{**foreign, "action": action})


def queries_of(route: APIRoute, foreign: Foreign) -> Iterator[dict[str, str]]:
    """Yield no query, each foreign value alone, and each pair of two parameters."""
    yield {}
    values = [
        (name, value.format(**foreign))
        for name in query_names(route)
        for value in _known(QUERIES, name, route)
    ]
    for name, value in values:
        yield {name: value}
    for (name, value), (other, second) in product(values, values):
        if name < other:
            yield {name: value, other: second}


def forms_of(route: APIRoute, foreign: Foreign) -> Iterator[dict[str, str]]:
    names = [name for name in body_names(route) if name != "csrf"]
    choices = [[value.format(**foreign) for value in _known(FORMS, name, route)] for name in names]
    for chosen in product(*choices):
        yield dict(zip(names, chosen, strict=True))


def _known(table: dict[str, list[str]], name: str, route: APIRoute) -> list[str]:
    assert name in table, f"{route.path}: say what foreign thing {name!r} may name"
    return table[name]


def requests_of(
    route: APIRoute, method: str, foreign: Foreign
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every address and what goes with it."""
    for path in paths_of(route, foreign):
        if method == "GET":
            for query in queries_of(route, foreign):
                yield path, {"params": query}
        elif path.startswith("/v1/"):
            assert route.name in BODIES, f"{method} {path}: say what its body may name"
            for body, query in product(BODIES[route.name], queries_of(route, foreign)):
                yield path, {"params": query} | ({} if body is None else {"json": body})
        else:
            for form in forms_of(route, foreign):
                yield path, {"data": form}


async def page_tokens(world: World) -> dict[str, str]:
    """Return an operator's token for the second page of each listing."""
    _, secret = await world.engine.access.create_key("ann")
    tokens = {}
    async with client_of(world.engine, secret) as operator:
        for path in ("/v1/connections", "/v1/jobs", "/v1/signals"):
            page = (await operator.get(f"{path}?limit=1")).json()
            tokens[path] = tokens[path.removeprefix("/v1")] = page["next_page"] or "none"
    return tokens


async def test_every_route_has_its_foreign_things(world: World) -> None:
    names = ("connection_id", "job_id", "signal_id", "key_id", "action_id", "scope", "action")
    foreign = dict.fromkeys((*names, "page", "provider_slug"), "x")

    requests = [
        request
        for route in routes_of(world.engine)
        for method in methods_of(route)
        if route.path not in SAME_FOR_ALL
        for request in requests_of(route, method, foreign)
    ]

    assert len(requests) > 400


@pytest.mark.security
async def test_no_route_tells_or_changes_anything_foreign(
    world: World, foreign: Foreign, acme: Asker
) -> None:
    for _ in range(2):
        await world.job(await world.connection(tenant="birch"), status="failed")
    before = await everything_of_birch(world)
    tokens = await page_tokens(world)
    asked: Counter[str] = Counter()

    for route in routes_of(world.engine):
        if route.path in SAME_FOR_ALL or route.path == ENDLESS:
            continue
        named = {**foreign, "page": tokens.get(route.path, "none")}
        for method in methods_of(route):
            for path, options in requests_of(route, method, named):
                answer = await acme.ask(method, path, **options)
                asked[f"{method} {route.path}"] += 1
                check(answer, route, path, options)

    assert await everything_of_birch(world) == before
    assert len(asked) >= 35
    assert asked.total() >= 400
    print(f"{asked.total()} requests to {len(asked)} routes")


def check(answer: httpx2.Response, route: APIRoute, path: str, options: dict[str, Any]) -> None:
    what = (path, options, answer.status_code, answer.text[:300])
    sent = f"{path} {options}"
    told = [text for text in re.findall(rf"{CANARY}[a-z-]*", answer.text) if text not in sent]
    assert told == [], what
    assert answer.status_code < 500, what
    if not route.path.startswith("/v1/") or route.path in OPERATORS_ONLY:  # as all pages are
        assert answer.status_code == 403, what
    elif "{" in route.path:
        assert answer.status_code == 404, what
    elif "birch" in str(options.get("params", {}).get("tenant")):
        assert answer.status_code in (403, 422), what


@pytest.mark.security
async def test_a_stream_without_an_end_tells_nothing_foreign(
    world: World, foreign: Foreign, acme: Asker
) -> None:
    [route] = [one for one in routes_of(world.engine) if one.path == ENDLESS]
    for query in queries_of(route, foreign):
        if "tenant" in query:
            assert (await acme.ask("GET", ENDLESS, params=query)).status_code in (403, 422)
            continue
        heard = await first_bytes(world, acme, query)
        assert CANARY.encode() not in heard
        if query.get("position") == "start":
            assert b'"position"' in heard  # it has looked at all that is there


async def first_bytes(world: World, acme: Asker, query: dict[str, str]) -> bytes:
    """Return what a stream says first: a client that reads to its end would wait for ever."""
    request = acme.client.build_request("GET", BASE + ENDLESS, params=query)
    scope = {
        "type": "http",
        "method": "GET",
        "path": ENDLESS,
        "raw_path": ENDLESS.encode(),
        "query_string": request.url.query,
        "headers": [(name.lower(), value) for name, value in request.headers.raw],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8080),
        "scheme": "http",
        "root_path": "",
        "http_version": "1.1",
    }
    heard, has_heard = bytearray(), asyncio.Event()

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    async def send(message: Any) -> None:
        heard.extend(message.get("body", b""))
        if message.get("body"):
            has_heard.set()

    task = asyncio.create_task(create_app(world.engine)(scope, receive, send))
    async with asyncio.timeout(10):
        await has_heard.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return bytes(heard)


async def test_the_walk_finds_what_is_not_hidden(world: World, foreign: Foreign) -> None:
    """The same questions with an operator's key bring the canaries: the walk can fail."""
    _, secret = await world.engine.access.create_key("ann")
    found = set()
    async with client_of(world.engine, secret) as operator:
        for route in routes_of(world.engine):
            if "GET" in methods_of(route) and route.path not in (ENDLESS, "/events"):
                for path in paths_of(route, {**foreign, "page": "none"}):
                    found |= set(re.findall(rf"{CANARY}-[a-z]+", (await operator.get(path)).text))

    hidden = {f"{CANARY}-credential"}  # nobody is told these
    assert {f"{CANARY}-{name}" for name in ("id", "config", "error", "kind", "payload")} <= found
    assert not found & hidden


@pytest.mark.parametrize(
    "command", [("tenants", "export", "acme"), ("signals", "export", "--tenant", "acme")]
)
def test_an_export_of_one_tenant_holds_nothing_of_another(
    database_url: str, tmp_path: Path, command: tuple[str, ...]
) -> None:
    syncline = CommandLine(database_url, tmp_path)
    for tenant in ("acme", "birch"):
        id_ = syncline.add(f"{tenant}-canary", tenant=tenant)
        syncline.sql(
            "INSERT INTO syncline.signals (tenant_id, provider_slug, connection_id, kind)"
            " VALUES ($1, 'demo', $2, $3)",
            *(tenant, UUID(id_), f"{tenant}-canary"),
        )

    result = syncline(*command)

    assert "acme-canary" in result.stdout
    assert CANARY not in result.stdout
