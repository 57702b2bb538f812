"""The OpenAPI document is what a client can be generated from: ids, schemas, examples, problems."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from support.http import client_of
from support.world import World
from syncline.api.app import create_app
from syncline.api.openapi import PROBLEMS

API = Path(__file__).parents[2] / "src/syncline/api"
PROBLEM = "application/problem+json"
NO_BODY = {"204", "304"}
DECLARED = ("400", "401", "403", "422", "429", "503")


@pytest.fixture
def document(world: World) -> dict[str, Any]:
    found: dict[str, Any] = create_app(world.engine).openapi()
    return found


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def validator(document: dict[str, Any], schema: dict[str, Any]) -> Any:
    whole = {**schema, "components": document["components"]}
    return jsonschema_rs.Draft202012Validator(whole, validate_formats=True)


def test_operations_have_ids_that_make_a_good_client(document: dict[str, Any]) -> None:
    ids = Counter(operation["operationId"] for _, operation in operations(document))

    assert max(ids.values()) == 1
    assert {"connections.create", "connections.list", "jobs.retry", "signals.follow"} <= ids.keys()
    nouns = {"budgets", "caps", "connections", "jobs", "keys", "providers", "signals", "stats"}
    nouns |= {"actions", "audit", "pauses", "tenants", "workers"}
    for place, operation in operations(document):
        found = re.fullmatch(r"([a-z]+s|audit)\.[a-z_]+", operation["operationId"])
        assert found is not None, f"{place}: give it an operation_id such as jobs.retry"
        assert found[1] in nouns, f"{place}: add its noun here, and to syncline.client"


def test_operations_have_a_summary_and_say_what_they_refuse(document: dict[str, Any]) -> None:
    for place, operation in operations(document):
        assert operation["summary"], place
        assert operation["description"].endswith("."), place
        assert set(DECLARED) <= operation["responses"].keys(), place
        for status, response in operation["responses"].items():
            if status.startswith(("4", "5")):
                [kind] = response["content"]
                assert kind == PROBLEM, (place, status)


def test_every_answer_and_body_has_a_schema_and_an_example_that_it_allows(
    document: dict[str, Any],
) -> None:
    checked = 0
    for place, operation in operations(document):
        holders = {"body": operation.get("requestBody", {}), **operation["responses"]}
        for name, holder in holders.items():
            for kind, content in holder.get("content", {}).items():
                if kind == "application/x-ndjson":
                    continue
                assert content["schema"], (place, name)
                validator(document, content["schema"]).validate(content["example"])
                checked += 1
            has_content = bool(holder.get("content")) or not holder or name in NO_BODY
            assert has_content, (place, name)

    assert checked > 250


def test_the_schemas_are_json_schemas(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    for schema in document["components"]["schemas"].values():
        jsonschema_rs.meta.validate({"$schema": DRAFT, **schema})


DRAFT = "https://json-schema.org/draft/2020-12/schema"


def test_examples_look_like_what_the_server_returns(document: dict[str, Any]) -> None:
    found = dict(operations(document))

    created = found["POST /v1/connections"]
    [body] = created["requestBody"]["content"].values()
    assert body["example"]["provider_slug"] == "github"
    [answer] = created["responses"]["201"]["content"].values()
    assert answer["example"]["status"] == "active"
    [refused] = created["responses"]["422"]["content"].values()
    assert refused["example"]["errors"][0]["field"] == "interval_seconds"


def test_every_code_of_a_problem_is_described() -> None:
    used = set()
    for module in API.rglob("*.py"):
        used |= set(re.findall(r'Problem\(\s*\d{3},\s*"([a-z-]+)"', module.read_text()))
    used |= {"http"}  # with the status of the framework

    assert used == PROBLEMS.keys()


async def test_problems_have_a_code_and_a_trace_id(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    async with client_of(world.engine) as client:
        sent = {"traceparent": f"00-{trace_id}-00f067aa0ba902b7-01"}
        kept = (await client.get("/v1/jobs/x", headers=sent)).json()
        new = [(await client.get("/v1/jobs/x")).json()["trace_id"] for _ in range(2)]
        wrong = (await client.get("/v1/nothing", headers={"traceparent": "x" * 55})).json()

    assert (kept["code"], kept["trace_id"]) == ("invalid", trace_id)
    assert kept["type"] == "/docs#problem-invalid"
    assert len({trace_id, *new}) == 3
    assert wrong["code"] == "http"
    assert re.fullmatch("[0-9a-f]{32}", wrong["trace_id"])


async def test_the_log_names_the_trace_id_of_a_failed_request(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    app = create_app(world.engine)

    @app.get("/v1/broken")
    async def broken() -> None:
        raise RuntimeError

    async with client_of(world.engine, app=app) as client:
        problem = (await client.get("/v1/broken")).json()

    assert problem["code"] == "internal"
    assert any(f"trace_id={problem['trace_id']}" in one.getMessage() for one in caplog.records)
