"""JSON is measured in one linear pass, whole or piece by piece, before anything parses it."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from syncline.json_bounds import JsonBounds, JsonScanner, TooComplex, check_json, parse_quickly

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=25,
)


def depth(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth, value), default=0)
    return 0


def nodes(value: object) -> int:
    """Count as the scanner does: an empty list has room for a value, the whole is none."""
    if isinstance(value, dict | list):
        inner = list(value.values()) if isinstance(value, dict) else value
        return max(len(inner), 1) + sum(map(nodes, inner))
    return 0


def scan_in_pieces(document: bytes, size: int, bounds: JsonBounds) -> int:
    scanner = JsonScanner(bounds)
    for start in range(0, len(document), size):
        scanner.feed(document[start : start + size])
    return scanner.nodes


@given(VALUES, st.booleans(), st.integers(1, 7))
def test_the_scan_agrees_with_the_parser(value: object, is_ascii: bool, size: int) -> None:
    document = json.dumps(value, ensure_ascii=is_ascii).encode(errors="replace")
    value = json.loads(document)
    found = scan_in_pieces(document, size, JsonBounds(depth=depth(value)))
    assert found == nodes(value)
    if depth(value):
        with pytest.raises(TooComplex, match="nested deeper"):
            check_json(document, JsonBounds(depth=depth(value) - 1))


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    ("document", "bound"),
    [
        (b"[" * 65, "depth"),
        (b'{"a":' * 65, "depth"),
        (b'["\\"[","\\\\",' + b"[" * 64, "depth"),
        (b"[" + b"[]," * 600, "nodes"),
        (b"[1." + b"1" * 1_000, "number_bytes"),
        (b'["' + b"a" * 2_001, "string_bytes"),
    ],
)
def test_each_bound_is_found_across_pieces(document: bytes, bound: str, size: int) -> None:
    bounds = JsonBounds(nodes=1_000, string_bytes=2_000)
    with pytest.raises(TooComplex) as raised:
        scan_in_pieces(document, size, bounds)
    assert raised.value.bound == bound


@pytest.mark.parametrize(
    "document",
    [
        b"[" * 64 + b"]" * 64,
        b'["' + b"[{" * 900 + b'\\"[[["]',
        b"[1." + b"1" * 998 + b",1." + b"1" * 998 + b"]",
        b'["' + b"a" * 2_000 + b'","' + b"a" * 2_000 + b'"]',
    ],
)
def test_what_is_within_the_bounds_passes(document: bytes) -> None:
    check_json(document, JsonBounds(nodes=1_000, string_bytes=2_000))


def outcome_of(parse: Callable[[bytes], Any], document: bytes) -> str:
    """Return the value with its types, or the error: 1 is not 1.0, and -0.0 is not 0.0."""
    try:
        return repr(parse(document))
    except (ValueError, RecursionError) as error:
        return f"{type(error).__name__}: {error}"


TOKENS = st.sampled_from(
    ["[", "]", "{", "}", ",", ":", " ", "\n", '"', '"a"', '"a":', '"\\ud800"', '"\\u0000"', "\\",
     "-0", "-0.0", "0", "1", "01", "1.", "1e400", "-1e400", "1e-400", "NaN", "Infinity", "1E5",
     "true", "null", "9223372036854775807", "9223372036854775808", "-9223372036854775808",
     "-9223372036854775809", "18446744073709551615", "18446744073709551616", "1" * 30,
     "0.1234567890123456789", "-Infinity", "123456789012345680", "\ufeff", "é", "\x7f", "\x1f"]
)  # fmt: skip


@given(VALUES | st.floats(), st.booleans(), st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]))
def test_the_quick_parser_reads_documents_like_json(
    value: object, is_ascii: bool, encoding: str
) -> None:
    document = json.dumps(value, ensure_ascii=is_ascii).encode(encoding, "surrogatepass")
    assert outcome_of(parse_quickly, document) == outcome_of(json.loads, document)


@given(st.lists(TOKENS | st.integers().map(str) | st.floats().map(repr), max_size=12).map("".join))
@example("[18446744073709551616]")
@example("[-9223372036854775809, 1]")
@example('{"a": 1, "b": 2, "a": 3}')
@example("x" * 7 + "1" * 19)
@example("[-0, -0.0, 1e400, NaN]")
@example("[" * 700 + "]" * 700)
@example("[" * 5000 + "]" * 5000)
def test_the_quick_parser_gives_what_json_gives(text: str) -> None:
    document = text.encode("utf-8", "surrogatepass")
    assert outcome_of(parse_quickly, document) == outcome_of(json.loads, document)


@given(st.integers(0, 40), st.integers(17, 45))
def test_a_long_number_is_noticed_wherever_it_stands(place: int, digits: int) -> None:
    document = b" " * place + b"7" * digits
    assert outcome_of(parse_quickly, document) == outcome_of(json.loads, document)
