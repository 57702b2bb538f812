"""The client's operations, arguments and answers, held against the server's OpenAPI document."""

from typing import Any, get_type_hints

import pytest

from support.world import World
from syncline.api.app import create_app
from syncline.client import AsyncClient, answers, arguments
from syncline.client.answers import Answer, Page

NAMES = {
    "AddedMany": "BulkOut",
    "Batch": "FollowedOut",
    "ProviderCall": "CallOut",
    "ProviderPage": "ProvidersOut",
}
OUR_NAMES = {theirs: ours for ours, theirs in NAMES.items()}
MODELS = [
    model
    for name, model in vars(answers).items()
    if isinstance(model, type) and issubclass(model, Answer) and name not in ("Answer", "Page")
    if "[" not in name
]
# Streams: `signals.list` and `signals.follow` iterate over the same.
LEFT_OUT = {"signals.stream", "signals.tail"}
PAGING = {"page", "limit"}
FILTERS: dict[str, Any] = {
    "/v1/audit": arguments.AuditFilters,
    "/v1/connections": arguments.ConnectionFilters,
    "/v1/jobs": arguments.JobFilters,
    "/v1/tenants": arguments.TenantFilters,
    "/v1/signals": arguments.SignalFilters,
    "/v1/signals/follow": arguments.FollowFilters,
}
BODIES: dict[str, Any] = {
    "BudgetBody": arguments.BudgetFields,
    "EditBody": arguments.Changes,
    "NewConnectionBody": arguments.NewConnection,
    "NewKeyBody": arguments.NewKeyFields,
    "OneConnectionBody": arguments.OneConnection,
}


@pytest.fixture
def document(world: World) -> dict[str, Any]:
    found: dict[str, Any] = create_app(world.engine).openapi()
    return found


async def test_every_operation_is_a_method(document: dict[str, Any]) -> None:
    client = AsyncClient("http://127.0.0.1")
    ids = {
        operation["operationId"]
        for methods in document["paths"].values()
        for operation in methods.values()
    }

    for id_ in ids - LEFT_OUT:
        noun, verb = id_.split(".")
        assert callable(getattr(getattr(client, noun, None), verb, None)), (
            f"write {id_} in syncline/client/nouns.py"
        )
    assert ids >= LEFT_OUT


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_answers_have_the_fields_of_the_servers(
    model: type[Answer], document: dict[str, Any]
) -> None:
    name = NAMES.get(model.__name__, f"{model.__name__}Out")
    theirs = document["components"]["schemas"][name]

    ours = model.model_json_schema(mode="serialization")
    assert ours.get("required", []) == theirs["required"], f"bring client/answers.py up to {name}"
    fields, expected = ours["properties"], theirs["properties"]
    if issubclass(model, Page):
        fields.pop("next_page")
    assert {field: _kind(one) for field, one in fields.items()} == {
        field: _kind(one) for field, one in expected.items()
    }


def _kind(schema: Any) -> Any:
    """Return what a schema allows, without what it says about it."""
    if isinstance(schema, list):
        return [_kind(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return OUR_NAMES.get(name, name.removesuffix("Out"))
    words = {"title", "description", "default", "writeOnly"}
    return {name: _kind(one) for name, one in schema.items() if name not in words}


@pytest.mark.parametrize("path", FILTERS)
def test_filters_are_those_of_the_server(path: str, document: dict[str, Any]) -> None:
    declared = document["paths"][path]["get"]["parameters"]
    parameters = {one["name"] for one in declared if one["in"] == "query"}
    followers = {"position", "wait"} if path.endswith("follow") else set()

    assert get_type_hints(FILTERS[path]).keys() - {"page_size"} == parameters - PAGING - followers


@pytest.mark.parametrize("name", BODIES)
def test_bodies_have_the_fields_of_the_servers(name: str, document: dict[str, Any]) -> None:
    theirs = document["components"]["schemas"][name]
    ours = BODIES[name]

    assert get_type_hints(ours).keys() - {"force", "expected"} == theirs["properties"].keys()
    assert ours.__required_keys__ == set(theirs.get("required", []))
