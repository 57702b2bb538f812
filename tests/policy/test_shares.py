"""Who asks for more than a fair share, and whose turn it is (P8)."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.policy.shares import (
    LARGEST_RESERVE,
    MORE_THAN_FEW,
    Turns,
    find_heavy,
    reserved_share,
)

SMALL = {f"small {number}": 1 for number in range(200)}
CASES: dict[str, tuple[dict[str, int], dict[str, float], int, set[str]]] = {
    "there are slots for everybody": ({"a": 40, "b": 9}, {}, 50, set()),
    "nobody else wants anything": ({"a": 100_000}, {}, 50, set()),
    "one flood": ({"a": 100_000, **SMALL}, {}, 50, {"a"}),
    "several floods": ({"a": 100_000, "b": 9_000, **SMALL}, {}, 50, {"a", "b"}),
    "all ask for as much": ({"a": 1000, "b": 1000}, {}, 50, set()),
    "all ask for more": ({"a": 100_000, "b": 1000}, {}, 50, set()),
    "what some leave goes to others": ({"a": 100, "b": 4}, {}, 50, {"a"}),
    "within a larger share": ({"a": 90, "b": 40}, {"a": 9}, 100, {"b"}),
    "weights divide floods": ({"a": 1000, "b": 1000}, {"a": 3}, 50, {"a", "b"}),
    "few jobs are few, however few slots there are": ({"a": 4, "b": 1}, {}, 1, set()),
}


@pytest.mark.parametrize("name", CASES)
def test_who_asks_for_more(name: str) -> None:
    due, weights, slots, heavy = CASES[name]
    assert find_heavy(due, weights, slots) == heavy


def test_a_sample_of_equals_shows_nobody() -> None:
    due = {f"tenant {number}": 1 + number % 6 for number in range(1000)}
    assert not find_heavy(due, {}, 50, is_complete=False)


def test_a_sample_shows_a_flood() -> None:
    assert find_heavy({"a": 1960, **dict(list(SMALL.items())[:40])}, {}, 50, is_complete=False)


TENANTS = st.dictionaries(st.text(max_size=3), st.integers(1, 10_000), max_size=20)


@given(TENANTS, st.integers(1, 8000))
def test_whoever_yields_has_more_due_than_somebody_else(due: dict[str, int], slots: int) -> None:
    heavy = find_heavy(due, {}, slots)
    assert all(due[tenant] > MORE_THAN_FEW for tenant in heavy)
    if heavy:
        assert sum(due.values()) > slots
        assert min(due[tenant] for tenant in heavy) > min(due.values())


@given(TENANTS, st.integers(1, 8000))
def test_those_within_their_share_ask_for_less_than_all_slots(
    due: dict[str, int], slots: int
) -> None:
    heavy = find_heavy(due, {}, slots)
    fair = slots / max(len(due), 1)
    assert all(tenant not in heavy for tenant in due if due[tenant] <= fair)


def test_turns_are_by_weight() -> None:
    turns = Turns()
    taken = Counter[str]()
    for count in (1, 3, 96, 300):  # of several claims
        taken.update(turns.deal({"a": 1000, "b": 1000}, {"a": 3}, count))
    assert taken == {"a": 300, "b": 100}


def test_nobody_gets_more_turns_than_he_can_use() -> None:
    assert Counter(Turns().deal({"a": 5, "b": 100}, {"a": 3}, 50)) == {"a": 5, "b": 45}
    assert len(Turns().deal({"a": 5, "b": 0}, {}, 50)) == 5


def test_whoever_was_away_is_owed_nothing() -> None:
    turns = Turns()
    turns.deal({"a": 100}, {}, 100)
    taken = Counter(turns.deal({"a": 100, "b": 100}, {}, 20))
    assert abs(taken["a"] - taken["b"]) <= 2


def test_the_reserve_is_a_share_and_never_most_of_it() -> None:
    assert reserved_share({"a"}, SMALL, {}) == 1 / 201
    assert reserved_share({"a"}, {"b": 1}, {}) == LARGEST_RESERVE
    assert reserved_share((), SMALL, {}) == 0
