"""What is refused before any route sees it."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, MutableMapping
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from support.http import client_of
from support.world import World
from syncline.api.app import create_app
from syncline.api.timeouts import Timeouts

Client = httpx2.AsyncClient
NEW = {"tenant_id": "acme", "provider_slug": "github", "external_id": "a-1"}
JSON = {"Content-Type": "application/json"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


async def test_a_body_that_is_too_large(local: Client) -> None:
    big = json.dumps({**NEW, "config": {"a": "x" * 1_000_000}})

    announced = await local.post("/v1/connections", content=big, headers=JSON)

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"x" * 100_000

    streamed = await local.post("/v1/connections", content=chunks(), headers=JSON)

    for answer in (announced, streamed):
        assert answer.status_code == 413
        assert answer.json()["detail"] == "the body may have at most 1000000 bytes"
        assert answer.headers["x-content-type-options"] == "nosniff"


async def status_without_a_body(app: FastAPI, method: str, path: str) -> int:
    """Return how a stranger's request is answered although its body never arrives."""
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        raise AssertionError("the body was read")

    async def send(message: MutableMapping[str, Any]) -> None:
        statuses.extend([message["status"]] if "status" in message else [])

    headers = {"host": "127.0.0.1", "content-type": "application/json", "content-length": "9000"}
    scope = {
        "type": "http",
        "http_version": "1.1",
        "scheme": "http",
        "root_path": "",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "server": ("127.0.0.1", 8080),
        "client": ("127.0.0.1", 9),
        "asgi": {"version": "3.0"},
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    await app(scope, receive, send)
    return statuses[0]


async def test_who_asks_is_checked_before_the_body_is_read(world: World) -> None:
    await world.engine.access.create_key("ann")
    app = create_app(world.engine)

    for method, path, status in (
        ("POST", "/v1/connections/bulk", 401),
        ("PATCH", "/v1/connections/7", 401),
        ("POST", "/v1/nowhere", 401),
        ("POST", "/metrics", 401),
        ("POST", "/connections/bulk", 303),
        ("POST", "/nowhere", 404),
    ):
        assert await status_without_a_body(app, method, path) == status, (method, path)


@pytest.mark.parametrize(
    ("path", "kind", "body", "status"),
    [
        ("/v1/connections", JSON, json.dumps(NEW), 201),
        ("/connections/bulk", FORM, "action=pause", 422),  # it names no connection
    ],
)
async def test_who_asks_is_looked_up_once_before_the_body_is_read(
    world: World, path: str, kind: dict[str, str], body: str, status: int
) -> None:
    key, secret = await world.engine.access.create_key("ann")

    async def revoke_and_send() -> AsyncIterator[bytes]:
        await world.engine.access.revoke_key(key.id)
        yield body.encode()

    async with client_of(world.engine, secret) as client:
        answer = await client.post(path, content=revoke_and_send(), headers=kind)
        refused = await client.get("/v1/connections")

    assert (answer.status_code, refused.status_code) == (status, 401)


async def test_the_body_of_a_login_is_small(local: Client) -> None:
    answer = await local.post("/login", data={"key": "x" * 9000})

    assert (answer.status_code, answer.json()["detail"]) == (
        413,
        "the body may have at most 8000 bytes",
    )


async def test_a_bulk_may_be_larger(local: Client) -> None:
    body = {"connections": [{**NEW, "config": {"a": "x" * 200_000}}] * 20}

    assert (await local.post("/v1/connections/bulk", json=body)).status_code == 200


async def test_json_that_is_too_deep(local: Client) -> None:
    for deep in ("[" * 65, '{"a":' * 65, "[" * 100_000):
        answer = await local.post("/v1/connections", content=deep, headers=JSON)
        assert answer.status_code == 400
        assert "nested at most 64 levels deep" in answer.json()["detail"]


async def test_a_body_is_scanned_in_linear_time(local: Client) -> None:
    """41 kB of these held the process for 12 seconds, before anybody looked at the key."""
    for attack in ('"' + '\\"' * 450_000, "[" * 64 + '"' + '\\"' * 450_000, '"' * 900_000):
        began = time.process_time()
        answer = await local.post("/v1/connections", content=attack, headers=JSON)

        assert answer.status_code in (400, 413, 422)
        assert time.process_time() - began < 1


async def test_a_body_of_too_many_values(local: Client) -> None:
    lists = '{"connections":[' + "[]," * 600_000 + "[]]}"
    answer = await local.post("/v1/connections/bulk", content=lists, headers=JSON)

    assert answer.status_code == 413
    assert answer.json()["detail"] == "the JSON has more than 500000 values"


async def test_brackets_in_texts_are_not_nesting(local: Client) -> None:
    body = {**NEW, "config": {"a": "[" * 1000 + '"' + "{" * 1000}}

    assert (await local.post("/v1/connections", json=body)).status_code == 201


async def test_a_body_of_another_kind(local: Client) -> None:
    for kind in ("text/plain", FORM["Content-Type"], ""):
        answer = await local.post(
            "/v1/connections", content=json.dumps(NEW), headers={"Content-Type": kind}
        )
        assert answer.status_code == 415, kind


async def test_a_body_that_is_no_object(local: Client) -> None:
    for body in (b"{", b"\xff\xfe", b'{"a": NaN}', b"null", b"[]", b'"x"'):
        answer = await local.post("/v1/connections", content=body, headers=JSON)

        assert answer.status_code in (400, 422), answer.text
        assert answer.headers["content-type"] == "application/problem+json"


async def test_an_address_that_is_too_long(local: Client) -> None:
    assert (await local.get("/v1/connections?prefix=" + "x" * 9000)).status_code == 400


async def test_a_body_that_never_ends(world: World) -> None:
    async def drip() -> AsyncIterator[bytes]:
        while True:
            yield b" "
            await asyncio.sleep(0.01)  # a slow client

    async with client_of(world.engine, timeouts=Timeouts(body_seconds=0.05)) as client:
        answer = await client.post("/v1/connections", content=drip(), headers=JSON)

    assert answer.status_code == 408


async def test_an_answer_that_takes_too_long(world: World) -> None:
    async with client_of(world.engine, timeouts=Timeouts(answer_seconds=0.1)) as client:
        answer = await client.get("/v1/signals/follow?position=now&wait=20")

    assert answer.status_code == 503
    assert answer.json()["type"] == "/docs#problem-too-slow"


async def test_a_method_that_is_not_allowed(local: Client) -> None:
    for method, path in (
        *(("PUT", "/v1/connections"), ("DELETE", "/v1/jobs"), ("POST", "/v1/signals")),
        *(("GET", "/v1/connections/bulk"), ("POST", "/metrics"), ("TRACE", "/v1/jobs")),
    ):
        answer = await local.request(method, path)

        assert answer.status_code in (405, 422), (method, path)
        assert answer.headers["content-type"] == "application/problem+json"


async def test_every_refusal_is_a_problem_document(local: Client) -> None:
    for address in ("/nowhere", "/v1/nowhere", "/v1/connections/7", "/v1/jobs?limit=x"):
        answer = await local.get(address)
        problem = answer.json()
        assert answer.headers["content-type"] == "application/problem+json", address
        assert problem["status"] == answer.status_code
        assert {"type", "title", "detail"} <= problem.keys()
