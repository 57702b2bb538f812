"""Check a connection's settings against a program's own JSON Schema."""

from collections.abc import Iterator, Mapping
from typing import Any

TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}


def problems(value: Any, schema: Any, where: str = "settings") -> Iterator[str]:
    """Yield each problem with its field and rule.

    It checks the part of JSON Schema that programs use; the program checks the rest.
    """
    if not isinstance(schema, Mapping):
        return
    allowed = schema.get("type")
    allowed = [allowed] if isinstance(allowed, str) else allowed or []
    if allowed and not any(_is_a(value, name) for name in allowed):
        yield f"{where} is {type(value).__name__}, not {' or '.join(map(str, allowed))}"
        return
    choices = schema.get("enum")
    if isinstance(choices, list) and value not in choices:
        yield f"{where} is none of {', '.join(map(repr, choices))}"
    if isinstance(value, dict):
        yield from _problems_of_object(value, schema, where)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from problems(item, schema.get("items"), f"{where}[{index}]")


def _problems_of_object(
    value: dict[str, Any], schema: Mapping[str, Any], where: str
) -> Iterator[str]:
    known = schema.get("properties") or {}
    for name in schema.get("required") or ():
        default = isinstance(known.get(name), Mapping) and "default" in known[name]
        if name not in value and not default:
            yield f"{where}.{name} is missing"
    for name, inner in value.items():
        if name in known:
            yield from problems(inner, known[name], f"{where}.{name}")
        elif schema.get("additionalProperties") is False:
            yield f"{where}.{name} is unknown"


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


def _is_a(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, TYPES.get(name, (object,)))
