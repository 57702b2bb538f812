"""Check a JSON value against the part of JSON Schema that configurations use."""

from collections.abc import Iterator, Mapping
from typing import Any

from syncline.sdk.schema_patterns import is_too_long, matches

TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}
Problem = tuple[str, str]
"""A field, and the rule that it breaks."""


def without_references(schema: Any, deepest: int = 8) -> Any:
    """Return a schema with its `$ref` to `$defs` written out; deeper ones allow everything."""
    known = schema.get("$defs", {}) if isinstance(schema, Mapping) else {}

    def written_out(part: Any, left: int) -> Any:
        if isinstance(part, list):
            return [written_out(one, left) for one in part]
        if not isinstance(part, Mapping):
            return part
        place = part.get("$ref")
        if isinstance(place, str):
            meant = known.get(place.removeprefix("#/$defs/")) if left else None
            more = {name: one for name, one in part.items() if name != "$ref"}
            part, left = {**(meant or {}), **more}, left - 1
        return {name: written_out(one, left) for name, one in part.items() if name != "$defs"}

    return written_out(schema, deepest)


def schema_problems(value: Any, schema: Any, where: str) -> Iterator[Problem]:
    """Yield each problem with its field and its rule; keywords that are not known here pass."""
    if not isinstance(schema, Mapping):
        return
    allowed = schema.get("type")
    allowed = [allowed] if isinstance(allowed, str) else allowed or []
    if allowed and not any(_is_a(value, name) for name in allowed):
        yield where, f"is {type(value).__name__}, not {' or '.join(map(str, allowed))}"
        return
    choices = schema.get("enum")
    if isinstance(choices, list) and value not in choices:
        yield where, f"is none of {', '.join(map(repr, choices))}"
    yield from _problems_of_choice(value, schema, where)
    yield from _problems_inside(value, schema, where)


def _problems_of_choice(value: Any, schema: Mapping[str, Any], where: str) -> Iterator[Problem]:
    """Yield what breaks the first choice, unless another one fits."""
    choices = schema.get("anyOf")
    if isinstance(choices, list) and choices:
        tried = [list(schema_problems(value, choice, where)) for choice in choices]
        if all(tried):
            yield from tried[0]


def _problems_inside(value: Any, schema: Mapping[str, Any], where: str) -> Iterator[Problem]:
    """Yield what breaks the rules for values of its type."""
    if isinstance(value, dict):
        yield from _problems_of_object(value, schema, where)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from schema_problems(item, schema.get("items"), f"{where}[{index}]")
    elif isinstance(value, str):
        yield from _problems_of_text(value, schema, where)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _problems_of_number(value, schema, where)


def _problems_of_object(
    value: dict[str, Any], schema: Mapping[str, Any], where: str
) -> Iterator[Problem]:
    known = schema.get("properties") or {}
    for name in schema.get("required") or ():
        default = isinstance(known.get(name), Mapping) and "default" in known[name]
        if name not in value and not default:
            yield f"{where}.{name}", "is missing"
    for name, inner in value.items():
        if name in known:
            yield from schema_problems(inner, known[name], f"{where}.{name}")
        elif schema.get("additionalProperties") is False:
            yield f"{where}.{name}", "is unknown"


def _problems_of_text(value: str, schema: Mapping[str, Any], where: str) -> Iterator[Problem]:
    least, most = _number(schema, "minLength"), _number(schema, "maxLength")
    if least is not None and len(value) < least:
        yield where, f"has {len(value)} characters; {least} is the least"
    if most is not None and len(value) > most:
        yield where, f"has {len(value)} characters; {most} is the most"
    else:
        yield from _problems_of_patterns(value, schema, where)


def _problems_of_patterns(value: str, schema: Mapping[str, Any], where: str) -> Iterator[Problem]:
    excluded = schema.get("not")
    for holder, is_wanted in ((schema, True), (excluded, False)):
        pattern = holder.get("pattern") if isinstance(holder, Mapping) else None
        if not isinstance(pattern, str):
            continue
        if is_too_long(pattern, value):
            yield where, f"has {len(value)} characters, too many to match the pattern {pattern}"
        elif matches(pattern, value) is (not is_wanted):
            rule = "does not match" if is_wanted else "must not match"
            yield where, f"{rule} the pattern {pattern}"


def _problems_of_number(value: float, schema: Mapping[str, Any], where: str) -> Iterator[Problem]:
    least, most = _number(schema, "minimum"), _number(schema, "maximum")
    if least is not None and not value >= least:
        yield where, f"is {value}; {least} is the least"
    if most is not None and not value <= most:
        yield where, f"is {value}; {most} is the most"


def _number(schema: Mapping[str, Any], keyword: str) -> float | None:
    found = schema.get(keyword)
    return found if isinstance(found, int | float) and not isinstance(found, bool) else None


def _is_a(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, TYPES.get(name, (object,)))
