"""The description of the API: OpenAPI for programs, and a page without scripts for people."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse, JSONResponse
from jinja2 import Environment, PackageLoader

DESCRIPTION = (
    "Connections, jobs and signals of Syncline. Keys go into the header `Authorization: Bearer …`; "
    "on the machine itself none is needed until the first one is made. Errors are problem "
    "documents (RFC 9457) that name the field and the rule. Pages go on with `next_page`. Every "
    "operation names the scope that its key needs: `read`, `operate`, which includes `read`, or "
    "`admin`, which includes both."
)
PROBLEMS = {
    "scope": "The key may not do this; `detail` names the scope that may.",
    "invalid": "A field breaks a rule; `errors` names each.",
    "key": "The key is missing or no longer good.",
    "operators-only": "A tenant's key cannot do this.",
    "provider": "A tenant's key may not connect this provider.",
    "other-tenant": "A tenant's key named another tenant.",
    "not-found": "There is no such thing, or it is another tenant's.",
    "conflict": "What stands there forbids it.",
    "storage": "The tenant stores more than it may.",
    "changed": "Somebody changed it since it was read: read it again.",
    "key-reused": "The idempotency key was used for another request.",
    "too-large": "The body is larger than allowed.",
    "too-long": "The address is longer than allowed.",
    "headers": "The target and headers are larger, or more, than allowed.",
    "unreadable": "What was sent is no HTTP request.",
    "too-deep": "The JSON is nested deeper than allowed.",
    "media-type": "The body is of another kind than application/json.",
    "foreign-origin": "A page of another site asked for a change.",
    "csrf": "The form of a signed-in browser has expired.",
    "proxied": "A request came through a proxy, and there is no key yet.",
    "too-many-requests": "Too many requests: wait as long as `Retry-After` says.",
    "too-slow": "The question took too long: narrow the filter.",
    "not-configured": "This server lacks what that needs; `detail` names the setting.",
    "unavailable": "The database does not answer now.",
}


@dataclass(frozen=True, slots=True)
class Operation:
    """One route, as the page shows it."""

    method: str
    path: str
    summary: str
    tag: str
    parameters: list[dict[str, Any]] = field(default_factory=list)
    body: str = ""
    statuses: str = ""
    scope: str = ""


def install(app: FastAPI) -> None:
    """Serve `/openapi.json` and `/docs`."""
    environment = Environment(loader=PackageLoader("syncline.api", "assets"), autoescape=True)
    template = environment.get_template("docs.html")

    def describe() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = describe  # type: ignore[method-assign]

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi() -> JSONResponse:
        return JSONResponse(describe())

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        document = describe()
        operations = list(operations_of(document))
        return HTMLResponse(
            template.render(
                description=DESCRIPTION,
                version=document["info"]["version"],
                operations=operations,
                tags=list(dict.fromkeys(one.tag for one in operations)),
                problems=PROBLEMS,
            )
        )


def operations_of(document: dict[str, Any]) -> Iterator[Operation]:
    """Yield the operations of an OpenAPI document."""
    schemas = document["components"]["schemas"]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            content = operation.get("requestBody", {}).get("content", {})
            schema = content.get("application/json", {}).get("schema", {})
            yield Operation(
                method=method.upper(),
                path=path,
                summary=operation.get("description") or operation.get("summary", ""),
                tag=operation["tags"][0],
                parameters=[_parameter(one, schemas) for one in operation.get("parameters", ())],
                body=json.dumps(_resolved(schema, schemas), indent=2) if schema else "",
                statuses=", ".join(operation["responses"]),
                scope=operation["security"][0]["key"][0],
            )


def _parameter(parameter: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    schema = _resolved(parameter["schema"], schemas)
    return {
        "name": parameter["name"],
        "in": parameter["in"],
        "is_required": parameter.get("required", False),
        "about": parameter.get("description") or schema.get("description", ""),
        "kind": _kind(schema),
    }


def _kind(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return " | ".join(str(value) for value in schema["enum"])
    if "anyOf" in schema:
        kinds = (_kind(one) for one in schema["anyOf"] if one.get("type") != "null")
        return ", ".join(kinds)
    bounds = [f"{name} {schema[key]}" for key, name in BOUNDS.items() if key in schema]
    return " ".join([str(schema.get("format") or schema.get("type", "any")), *bounds])


BOUNDS = {"minimum": "from", "maximum": "to", "minLength": "length from", "maxLength": "to"}


def _resolved(schema: Any, schemas: dict[str, Any]) -> Any:
    """Return a schema with what it refers to put in."""
    if isinstance(schema, list):
        return [_resolved(one, schemas) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _resolved(schemas[schema["$ref"].rpartition("/")[2]], schemas)
    return {key: _resolved(value, schemas) for key, value in schema.items() if key != "title"}


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title, version=app.version, description=DESCRIPTION, routes=app.routes
    )
    document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    for methods in document["paths"].values():
        for operation in methods.values():
            _describe_problems(operation["responses"])
    document["components"]["schemas"].pop("HTTPValidationError", None)
    document["components"]["schemas"].pop("ValidationError", None)
    return document


def _describe_problems(responses: dict[str, Any]) -> None:
    """Let refusals be problem documents alone, not also the framework's own."""
    for status, response in responses.items():
        if status.startswith(("4", "5")):
            content = response.get("content", {})
            response["content"] = {
                kind: value for kind, value in content.items() if kind != "application/json"
            }
