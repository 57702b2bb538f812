"""JSON that Postgres can store and that everybody can read back."""

import json
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.errors import ContractError
from syncline.sdk.json_text import (
    ENCODER,
    decode_json,
    encode_json,
    quick_encoder,
    read_json,
    same_json,
)

LIMIT = 100_000

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text("abc\\u0"), inner)
)


class Colour(StrEnum):
    RED = "red"


class Size(IntEnum):
    LARGE = 3


def nested(depth: int, kind: type[list[Any]] | type[dict[str, Any]] = list) -> Any:
    """Return a value of so many levels."""
    value: Any = kind()
    for _ in range(depth - 1):
        value = [value] if kind is list else {"k": value}
    return value


def circle() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (0, "0"),
        (-1.5, "-1.5"),
        ("", '""'),
        ("ü😀", '"ü😀"'),
        ('"\\\n\x01', '"\\"\\\\\\n\\u0001"'),
        ([], "[]"),
        ((1, 2), "[1,2]"),
        ({"a": {"b": [1]}}, '{"a":{"b":[1]}}'),
        ({1: "one"}, '{"1":"one"}'),
        (Colour.RED, '"red"'),
        (Size.LARGE, "3"),
    ],
)
def test_values_become_compact_text(value: Any, text: str) -> None:
    assert encode_json(value, limit=LIMIT, where="cursor") == text


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        pytest.param(float("nan"), "not JSON compliant", id="NaN"),
        pytest.param({"a": [float("inf")]}, "not JSON compliant", id="infinity"),
        pytest.param(float("1e5000"), "not JSON compliant", id="1e5000"),
        pytest.param({float("nan"): 1}, "not JSON compliant", id="NaN as a key"),
        pytest.param(10**5000, "4300 digits", id="an integer that nobody can read back"),
        pytest.param("a\0b", "has a NUL character", id="NUL"),
        pytest.param({"a": [{"b": "\0"}]}, "has a NUL character", id="NUL deep inside"),
        pytest.param({"\0": 1}, "has a NUL character", id="NUL in a key"),
        pytest.param(("\0",), "has a NUL character", id="NUL in a tuple"),
        pytest.param("\ud800", "has a lone surrogate", id="a lone surrogate"),
        pytest.param({"\udfff": 1}, "has a lone surrogate", id="a lone surrogate in a key"),
        pytest.param("\ud83d\ude00", "has a lone surrogate", id="a pair of them"),
        pytest.param(nested(65), "nested deeper than 64", id="65 lists"),
        pytest.param(nested(65, dict), "nested deeper than 64", id="65 objects"),
        pytest.param(
            [[], nested(64)], "nested deeper than 64", id="65 lists, not all in the first"
        ),
        pytest.param(nested(100_000), "nested deeper than 64", id="100,000 lists"),
        pytest.param(circle(), "contains itself", id="a circle"),
        pytest.param(b"x", "bytes is not JSON serializable", id="bytes"),
        pytest.param({1, 2}, "set is not JSON serializable", id="a set"),
        pytest.param(Decimal(1), "Decimal is not JSON serializable", id="a decimal"),
        pytest.param(datetime(2025, 1, 1), "datetime is not JSON serializable", id="a time"),
        pytest.param({(1, 2): 3}, "keys must be str", id="a tuple as a key"),
    ],
)
def test_what_cannot_be_stored_is_refused_with_its_place(value: Any, reason: str) -> None:
    with pytest.raises(ContractError) as refusal:
        encode_json(value, limit=LIMIT, where="signals[3].payload")

    assert str(refusal.value).startswith("signals[3].payload: ")
    assert reason in str(refusal.value)
    assert len(str(refusal.value)) < 300


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(nested(64), id="64 levels"),
        pytest.param([[]] * 500, id="many brackets side by side"),
        pytest.param("[" * 500, id="brackets in a text"),
        pytest.param('\\"[{' * 500, id="quotes and brackets in a text"),
        pytest.param("\\u0000", id="a text about NUL"),
        pytest.param({"\\u0000": "\\\\u0000"}, id="and a key"),
        pytest.param("\ufffd\u2028\x7f", id="odd characters"),
        pytest.param(10**4000, id="a long integer"),
        pytest.param(5e-324, id="the smallest float"),
    ],
)
def test_what_only_looks_bad_is_taken(value: Any) -> None:
    text = encode_json(value, limit=LIMIT, where="cursor")

    assert decode_json(text, where="cursor") == value


@pytest.mark.parametrize(
    ("value", "size"),
    [
        pytest.param("x" * 98, 100, id="ascii"),
        pytest.param("é" * 49, 100, id="two bytes each"),
        pytest.param("€" * 32, 98, id="three bytes each"),
        pytest.param("😀" * 24, 98, id="four bytes each"),
        pytest.param("\n" * 49, 100, id="escaped"),
    ],
)
def test_the_limit_counts_bytes_of_json(value: str, size: int) -> None:
    assert encode_json(value, limit=size, where="cursor") == json.dumps(value, ensure_ascii=False)
    with pytest.raises(ContractError) as refusal:
        encode_json(value, limit=size - 1, where="cursor")

    assert str(refusal.value) == f"cursor: {size} bytes of JSON, over the limit of {size - 1}"


@given(values)
def test_what_is_taken_can_be_read_again(value: Any) -> None:
    text = encode_json(value, limit=10**6, where="cursor")

    assert decode_json(text, where="cursor") == value


@pytest.mark.parametrize("text", ["9" * 5000, "[" * 100_000, "{", ""], ids=lambda text: text[:3])
def test_stored_text_that_python_cannot_read_is_told(text: str) -> None:
    with pytest.raises(ContractError, match=r"^the job's cursor cannot be read: "):
        decode_json(text, where="the job's cursor")

    assert set(read_json(text)) == {"unreadable"}


def test_no_text_is_no_value() -> None:
    assert decode_json(None, where="cursor") is None
    assert read_json(None) is None
    assert read_json('{"a":1}') == {"a": 1}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (None, None, True),
        (None, {}, False),
        ({}, [], False),
        (0, False, False),
        (1, True, False),
        ([1], [True], False),
        ({"a": 0}, {"a": False}, False),
        (1, 1.0, True),
        (1e16, 10**16, True),
        (-0.0, 0, True),
        ("1", 1, False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ([1, 2], [2, 1], False),
        ([1], [1, 1], False),
        ({"a": [{"b": None}]}, {"a": [{"b": None}]}, True),
    ],
)
def test_same_json(one: Any, other: Any, same: bool) -> None:
    assert same_json(one, other) is same
    assert same_json(other, one) is same


strange = st.sampled_from(
    [float("nan"), float("inf"), "\ud800", "\0", 10**40, {1: 2}, {None: 1, True: 2}, {(1,): 1},
     {1, 2}, b"a", Decimal(1), datetime(2026, 1, 1), Colour.RED, Size.LARGE, (1, 2), object]
)  # fmt: skip


@pytest.mark.parametrize("encoder", [ENCODER, json.JSONEncoder(sort_keys=True)])
@given(value=st.recursive(values | strange, lambda inner: st.lists(inner) | st.tuples(inner)))
def test_the_quick_encoder_writes_and_refuses_like_its_encoder(
    encoder: json.JSONEncoder, value: Any
) -> None:
    def outcome_of(encode: Any) -> Any:
        try:
            return encode(value)
        except (TypeError, ValueError) as error:
            return type(error), str(error)

    assert outcome_of(quick_encoder(encoder)) == outcome_of(encoder.encode)


class Shape(Enum):
    ROUND = "round"


@dataclass
class Point:
    x: int = 1


plain_looking = st.sampled_from([UUID(int=1), Shape.ROUND, Point(), date(2026, 1, 1), -0.0, 1e-7])


@given(
    st.recursive(
        values | strange | plain_looking,
        lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text("ab"), inner),
    )
)
def test_text_means_what_the_standard_encoder_writes_or_is_refused_as_there(value: Any) -> None:
    try:
        expected = json.loads(ENCODER.encode(value))
        ENCODER.encode(value).encode()
    except (TypeError, ValueError):
        with pytest.raises(ContractError):
            encode_json(value, limit=LIMIT, where="payload")
        return
    with suppress(ContractError):  # a NUL, which only we refuse
        text = encode_json(value, limit=LIMIT, where="payload")
        assert same_json(json.loads(text), expected)


def test_a_value_that_contains_itself_is_called_so() -> None:
    inside: list[Any] = []
    inside.append(inside)
    with pytest.raises(ContractError, match="contains itself"):
        encode_json(inside, limit=LIMIT, where="cursor")
    assert encode_json([[]], limit=LIMIT, where="cursor") == "[[]]"
