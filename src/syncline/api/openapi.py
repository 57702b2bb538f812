"""The API documentation: OpenAPI for programs, and a page without scripts for people."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse, JSONResponse
from jinja2 import Environment, PackageLoader

from syncline.api.examples import add_examples, problem_example

DESCRIPTION = (
    "Connections, jobs and signals of Syncline. Send a key as `Authorization: Bearer …`; "
    "on this machine none is needed until the first one is created. Errors are problem documents "
    "(RFC 9457) with a `code`, the field and the rule. To continue a list, send its `next_page`. "
    "Every operation names the scope that the key needs: `read`; `operate`, which includes `read`; "
    "or `admin`, which includes both."
)
PROBLEMS = {
    "scope": "The key lacks the scope that `detail` names.",
    "invalid": "A field breaks a rule; `errors` lists each one.",
    "key": "The key is missing, unknown, expired or revoked.",
    "operators-only": "This needs an operator's key.",
    "provider": "A tenant's key may not connect this provider.",
    "other-tenant": "The request names a tenant that the key may not see.",
    "not-found": "It does not exist, or it belongs to another tenant.",
    "position-lost": "The database does not know this position of a follower: start again.",
    "conflict": "The current state does not allow it; `detail` says why.",
    "storage": "The tenant is over its storage limit.",
    "changed": "It has changed since you read it: read it again.",
    "key-reused": "The idempotency key was used for another request.",
    "too-large": "The body is larger than allowed.",
    "too-long": "Path and query are longer than allowed.",
    "cut-short": "The body ended before its announced length.",
    "slow-body": "The body took too long to arrive.",
    "host": "The `Host` header names another host: add it to `api.hosts`.",
    "http": "The path or the method does not exist.",
    "headers": "The headers are too large or too many.",
    "unreadable": "This is not a valid HTTP request.",
    "too-deep": "The JSON is nested deeper than allowed.",
    "media-type": "The body must be application/json.",
    "foreign-origin": "A page of another site sent the request.",
    "csrf": "The form has expired: reload the page.",
    "proxied": "The request came through a proxy, and no key exists yet: create one.",
    "too-many-requests": "Too many requests: wait for the seconds in `Retry-After`.",
    "too-slow": "The query took too long: narrow the filter.",
    "not-configured": "The server lacks a setting that this needs; `detail` names it.",
    "unavailable": "The database does not answer: try again later.",
    "internal": "A fault of the server; its log has the details by `trace_id`.",
}


@dataclass(frozen=True, slots=True)
class Operation:
    """One route, as the page shows it."""

    id: str
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
                id=operation["operationId"],
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


IF_NONE_MATCH = {
    "name": "If-None-Match",
    "in": "header",
    "required": False,
    "schema": {"type": "string"},
    "description": "An `ETag` you read before. If nothing has changed since, the answer is 304.",
}
BOUNDS = {"minimum": "from", "maximum": "to", "minLength": "length from", "maxLength": "to"}


def _resolved(schema: Any, schemas: dict[str, Any]) -> Any:
    """Return the schema with its references replaced by what they refer to."""
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
        for method, operation in methods.items():
            _describe_problems(operation["responses"])
            if method == "get" and "application/json" in operation["responses"]["200"]["content"]:
                operation.setdefault("parameters", []).append(IF_NONE_MATCH)
                operation["responses"]["304"] = {"description": "It looks as the `ETag` says."}
            add_examples(operation, document["components"]["schemas"])
    document["components"]["schemas"].pop("HTTPValidationError", None)
    document["components"]["schemas"].pop("ValidationError", None)
    return document


def _describe_problems(responses: dict[str, Any]) -> None:
    """Remove the framework's own error schema, so that only problem documents remain."""
    for status, response in responses.items():
        if status.startswith(("4", "5")):
            content = response.get("content", {})
            response["description"] = title = HTTPStatus(int(status)).phrase
            response["content"] = {
                kind: {**value, "example": problem_example(status, title)}
                for kind, value in content.items()
                if kind != "application/json"
            }
