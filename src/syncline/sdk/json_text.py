"""JSON that Postgres can store and every client can read back."""

import json
import marshal
import sys
from collections.abc import Callable
from json.encoder import (  # type: ignore[attr-defined]
    c_make_encoder,
    encode_basestring,
    encode_basestring_ascii,
)
from typing import Any

import orjson

from syncline.errors import ContractError
from syncline.json_bounds import MAX_DEPTH, JsonBounds, TooComplex, check_json

# The size is checked separately, and Python itself wrote the numbers.
NESTING = JsonBounds(nodes=sys.maxsize, number_bytes=1_000_000, string_bytes=sys.maxsize)
# Made once: `dumps` and `loads` take twice as long, because they set up an encoder each time.
ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
write_value = ENCODER.encode
read_value = json.JSONDecoder().raw_decode


def quick_encoder(encoder: json.JSONEncoder) -> Callable[[Any], str]:
    """Return the encoder's `encode`, made once for all values, which takes half of the time.

    It keeps no list of the values that it is inside of. A value that it cannot write goes to the
    encoder itself, for the error.
    """
    if c_make_encoder is None:  # an interpreter without the encoder in C
        return encoder.encode
    write = c_make_encoder(
        None,
        encoder.default,
        encode_basestring_ascii if encoder.ensure_ascii else encode_basestring,
        None,
        encoder.key_separator,
        encoder.item_separator,
        encoder.sort_keys,
        encoder.skipkeys,
        encoder.allow_nan,
    )

    def encode(value: Any) -> str:
        try:
            return "".join(write(value, 0))
        except (TypeError, ValueError, RecursionError):
            return encoder.encode(value)

    return encode


_write_carefully = quick_encoder(ENCODER)


def encode_json(value: Any, *, limit: int, where: str | None = None) -> str:
    """Return the value as JSON text, or raise a `ContractError` that says where it is wrong.

    Most values are written by the quick writer, which means the same in a third of the time. It
    also takes values that the encoder refuses, such as UUIDs and enumerations. `marshal` takes
    nothing but the built-in types, so whatever it refuses never gets there. The quick writer turns
    NaN into null, so a document with a null is compared with its value.
    """
    try:
        marshal.dumps(value)
        data = orjson.dumps(value)
        if b"null" in data and orjson.loads(data) != value:
            data = _write_or_refuse(value, where)
    except (TypeError, ValueError):
        data = _write_or_refuse(value, where)
    if len(data) > limit:
        raise ContractError(f"{len(data)} bytes of JSON, over the limit of {limit}", where=where)
    # Only text with this many brackets can be too deep, and only text with the escape can have a
    # NUL. The slow checks run for these alone.
    if data.count(b"[") + data.count(b"{") > MAX_DEPTH and _is_too_deep(data):
        raise ContractError(f"nested deeper than {MAX_DEPTH}", where=where)
    if b"\\" in data and b"\\u0000" in data and _has_nul(value):
        raise ContractError("has a NUL character", where=where)
    return data.decode()


def _write_or_refuse(value: Any, where: str | None) -> bytes:
    try:
        return _write_carefully(value).encode()
    except UnicodeEncodeError:
        raise ContractError("has a lone surrogate", where=where) from None
    except (TypeError, ValueError, RecursionError) as error:
        raise ContractError(_explain(error), where=where) from None


def decode_json(text: str | None, *, where: str) -> Any:
    """Return the value of stored JSON text, or raise a `ContractError` that names the place."""
    if text is None:
        return None
    if text == "{}":
        return {}  # most configurations are empty, and every run reads one
    try:
        return read_value(text)[0]  # Postgres wrote the text, so nothing follows the value
    except (ValueError, RecursionError) as error:
        raise ContractError(f"{where} cannot be read: {_explain(error)}") from None


def read_json(text: str | None) -> Any:
    """Return the value of stored JSON text, or a readable stand-in if Python cannot parse it."""
    try:
        return decode_json(text, where="value")
    except ContractError as error:
        return {"unreadable": str(error)}


def same_json(one: Any, other: Any) -> bool:
    """Return whether two decoded values are the same JSON: 1e2 is 100, but `true` is not 1."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_json(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_json, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _is_too_deep(text: bytes) -> bool:
    try:
        check_json(text, NESTING)
    except TooComplex:
        return True
    return False


def _has_nul(value: Any) -> bool:
    """Return whether any string in the value has a NUL; the depth was checked before."""
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, dict):
        return any(_has_nul(key) or _has_nul(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return any(_has_nul(item) for item in value)
    return False


def _explain(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return f"nested deeper than {MAX_DEPTH}, or contains itself"
    if "Circular" in str(error):
        return "contains itself"
    return str(error)[:200]
