"""Examples of requests and answers for the API documentation, made from their schemas.

A field's name says what it holds, so a new model has an example without further work.
"""

from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]
MEDIA_TYPE = "application/json"
SECOND, MINUTE, HOUR = "2026-03-01T09:00:00Z", "2026-03-01T09:01:00Z", "2026-03-01T10:00:00Z"
ID = "019cab3e-7f00-7c41-9d2b-5a1f0c3e8b6d"
SCHEMA = {"type": "object", "properties": {"repositories": {"type": "array"}}}
REFUSED = {"field": "interval_seconds", "rule": "Input should be greater than or equal to 60"}
# By the name of a field, or by its model and name. What the field's schema does not allow is
# passed over.
VALUES: dict[str, list[Any]] = {
    "JobOut.error": [None],
    "JobOut.status": ["succeeded"],
    "WorkerOut.status": ["alive"],
    "auth": [["token"]],
    "begins_with": ["sk_Zk3v"],
    "code": ["invalid"],
    "config": [{"repositories": ["acme/website"]}],
    "config_schema": [SCHEMA],
    "connections": [{"active": 41, "paused": 1}, 42],
    "credentials": [{"token": "…"}],
    "cursor": [{"since": SECOND}],
    "dedupe_key": ["42"],
    "detail": [f"{REFUSED['field']}: {REFUSED['rule']}"],
    "evidence": [{"status": "active"}],
    "external_id": ["website"],
    "health": ["ok"],
    "host": ["worker-1"],
    "inexact": [{"signals": "estimate"}],
    "job_type": ["incremental"],
    "key": ["sk_Zk3v…"],
    "kind": ["ticket_created"],
    "label": ["5 min"],
    "metadata": [{"sync": {"interval_seconds": 300, "next_run_at": HOUR}}],
    "name": ["acme, reporting"],
    "next_page": ["WyJpZCIsbnVsbCwiMDE5Y2FiM2UiXQ"],
    "order": ["id", "newest"],
    "outcomes": [{"succeeded": 120, "Transient": 2}],
    "payload": [{"number": 42, "title": "Cannot sign in"}],
    "per": ["1h"],
    "period": ["24h"],
    "position": ["1772355600000000.7411.019cab3e7f007c419d2b5a1f0c3e8b6d"],
    "provider_slug": ["github"],
    "providers": [["github"]],
    "reason": ["moving house", {"code": "paused", "message": "moving house"}],
    "recent_outcomes": [{"succeeded": 120, "Transient": 2}],
    "roles": [["scheduler", "executor"]],
    "scope": ["read", "google"],
    "source": ["operator"],
    "status": ["active", "succeeded", 422],
    "status_reason": [None],
    "summary": ["The next run starts at 10:00."],
    "tenant_id": ["acme"],
    "title": ["GitHub"],
    "trace_id": ["4bf92f3577b34da6a3ce929d0e0e4736"],
    "trouble": [None],
    "type": ["/docs#problem-invalid"],
    "version": ["3f1c9a7be02d4c5581aa"],
}
# What a status is usually about: its code, and what `detail` may say.
PROBLEM_OF_STATUS = {
    "400": ("too-long", "path and query may have at most 8000 bytes"),
    "401": ("key", "invalid key: unknown, expired or revoked"),
    "403": ("scope", "this key has the scope read; the request needs the scope operate"),
    "404": ("not-found", f"there is no connection {ID}"),
    "409": ("conflict", f"connection {ID} is paused, not active"),
    "410": ("position-lost", "position is of another database: start again"),
    "412": ("changed", f"connection {ID} has changed; its version is now 3f1c9a7be02d4c5581aa"),
    "413": ("too-large", "the body may have at most 1000000 bytes"),
    "415": ("media-type", "the body must be application/json"),
    "422": ("invalid", f"{REFUSED['field']}: {REFUSED['rule']}"),
    "429": ("too-many-requests", "this key sends too many requests; try again in 1 s"),
    "503": ("unavailable", "the database does not answer now"),
}


def add_examples(operation: dict[str, Any], schemas: Mapping[str, Schema]) -> None:
    """Add an example to an operation's body and to each of its answers."""
    for holder in (operation.get("requestBody", {}), *operation["responses"].values()):
        for kind, content in holder.get("content", {}).items():
            if kind == MEDIA_TYPE and content.get("schema"):
                content["example"] = example_of(content["schema"], schemas)


def problem_example(status: str, title: str) -> dict[str, Any]:
    """Return what a refusal with this status may look like."""
    code, detail = PROBLEM_OF_STATUS[status]
    found = {
        "type": f"/docs#problem-{code}",
        "title": title,
        "status": int(status),
        "code": code,
        "detail": detail,
        "trace_id": VALUES["trace_id"][0],
    }
    return found | ({"errors": [REFUSED]} if status == "422" else {})


def example_of(schema: Schema, schemas: Mapping[str, Schema], name: str = "") -> Any:
    """Return a value that the schema allows."""
    if "$ref" in schema:
        return example_of(schemas[schema["$ref"].rpartition("/")[2]], schemas, name)
    if "anyOf" in schema:
        given = [one for one in schema["anyOf"] if one.get("type") != "null"]
        is_absent = name.rpartition(".")[2] in ABSENT
        return None if is_absent else example_of(given[0], schemas, name)
    kind = schema.get("type")
    for value in VALUES.get(name, VALUES.get(name.rpartition(".")[2], ())):
        if "enum" in schema and value not in schema["enum"]:
            continue
        if kind is None or (isinstance(value, TYPES[kind]) and "$ref" not in str(schema)):
            return value
    return _plain(schema, schemas, name)


# Null in an example of something that is well.
ABSENT = {"failing_since", "limited_since", "troubled_since", "revoked_at", "retry_after"}
ABSENT |= {"existing_id", "errors", "waits_for_job", "affected_connections", "affected_tenants"}
TYPES: dict[str, type | tuple[type, ...]] = {
    "array": list,
    "boolean": bool,
    "integer": int,
    "null": type(None),
    "number": (int, float),
    "object": dict,
    "string": str,
}


def _plain(schema: Schema, schemas: Mapping[str, Schema], name: str) -> Any:
    if "enum" in schema or "const" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    match schema.get("type"):
        case "object":
            fields = schema.get("properties", {})
            of = schema.get("title", "")
            return {
                field: example_of(one, schemas, f"{of}.{field}") for field, one in fields.items()
            }
        case "array":
            return [example_of(schema["items"], schemas, name.removesuffix("s"))]
        case "string":
            return _text(schema)
        case "integer" | "number":
            return max(schema.get("minimum", 0), 1)
        case "boolean":
            return False
    return None


def _text(schema: Schema) -> str:
    return {"uuid": ID, "date-time": MINUTE}.get(schema.get("format", ""), "text")
