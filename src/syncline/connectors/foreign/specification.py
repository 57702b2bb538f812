"""Check a connection's settings against a program's own JSON Schema."""

from collections.abc import Iterator, Mapping
from typing import Any

from syncline.sdk.json_schema import schema_problems


def problems(value: Any, schema: Any, where: str = "settings") -> Iterator[str]:
    """Yield each problem with its field and rule; the program checks what remains."""
    for field, rule in schema_problems(value, schema, where):
        yield f"{field} {rule}"


def secret_values(value: Any, schema: Any) -> list[Any]:
    """Return the settings that the schema marks as secret."""
    if not isinstance(schema, Mapping) or not isinstance(value, dict):
        return []
    known = schema.get("properties") or {}
    found = []
    for name, inner in value.items():
        described = known.get(name)
        if isinstance(described, Mapping):
            marks = ("secret", "writeOnly", "airbyte_secret")
            if any(described.get(mark) for mark in marks) or described.get("format") == "password":
                found.append(inner)
            else:
                found += secret_values(inner, described)
    return found
