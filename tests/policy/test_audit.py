"""What the audit stores of a change: what differs, without secrets, and never too much."""

import json
from typing import Any

import pytest

from syncline.clock import new_id
from syncline.policy.audit import MOST_BYTES, Actor, ActorKind, difference, shown


@pytest.mark.parametrize(
    ("before", "after", "was", "is_now"),
    [
        ({"a": 1}, {"a": 1}, {}, {}),
        ({"a": 1}, {"a": 2}, {"a": 1}, {"a": 2}),
        ({"a": 1}, {}, {"a": 1}, {}),
        ({}, {"a": None}, {}, {}),
        ({"a": 1}, {"a": True}, {"a": 1}, {"a": True}),
        ({"c": {"x": 1, "y": 2}}, {"c": {"x": 1, "y": 3}}, {"c": {"y": 2}}, {"c": {"y": 3}}),
        ({"c": {"x": 1}}, {"c": {}}, {"c": {"x": 1}}, {}),
        ({"c": [1]}, {"c": [1, 2]}, {"c": [1]}, {"c": [1, 2]}),
    ],
)
def test_only_what_differs_is_kept(before: Any, after: Any, was: Any, is_now: Any) -> None:
    assert difference(before, after) == (was, is_now)


@pytest.mark.parametrize(
    "values",
    [
        {"password": "canary"},
        {"config": {"client_secret": ["canary"]}},
        {"config": {"headers": [{"Authorization": "Bearer canary"}]}},
        {"url": "https://user:canary@example.com/"},
        {"why": "their password=canary"},
        {"a": {"b": {"c": {"d": {"e": {"f": {"g": {"h": {"i": {"j": "canary"}}}}}}}}}},
    ],
)
def test_secrets_are_masked(values: dict[str, Any]) -> None:
    text = shown(values)

    assert text is not None
    assert "canary" not in text
    assert json.loads(text).keys() == values.keys()


@pytest.mark.parametrize(
    "values",
    [
        {"text": "é" * 100_000},
        {"list": list(range(100_000))},
        {f"key {number}": number for number in range(10_000)},
        {"k" * 100_000: 1},
    ],
)
def test_large_values_become_digests(values: dict[str, Any]) -> None:
    text = shown(values)

    assert text is not None
    assert len(text.encode()) <= MOST_BYTES
    json.loads(text)


def test_nothing_is_stored_for_nothing() -> None:
    assert (shown(None), shown({})) == (None, None)


def test_numbers_that_json_lacks_become_texts() -> None:
    assert json.loads(shown({"a": float("nan"), "b": 1.5}) or "") == {"a": "nan", "b": 1.5}


def test_an_actor_can_be_carried_to_another_process() -> None:
    actor = Actor(ActorKind.KEY, "deploy", new_id(), "127.0.0.1")

    assert Actor.from_json(json.loads(json.dumps(actor.as_json()))) == actor
