"""P1: at most so many calls in any span, and nearly as many if there is work."""

from bisect import bisect_left
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.world import at
from syncline.errors import Invalid
from syncline.policy.budgets import (
    Bucket,
    Budget,
    Members,
    Shortage,
    Source,
    by_provider,
    check,
    declared_by,
    default_provider,
    find_shortage,
    in_force,
    read_span,
)
from syncline.sdk.limits import Limit

HOUR = timedelta(hours=1)


def busiest_window(calls: list[float], per: float) -> int:
    """Return the most calls in any window of this length, both of its ends included."""
    calls = sorted(calls)
    return max(
        (number - bisect_left(calls, last - per) + 1 for number, last in enumerate(calls)),
        default=0,
    )


@given(
    calls=st.integers(1, 400),
    burst=st.none() | st.integers(1, 200),
    per=st.sampled_from([1, 10, 60, 3600]),
    pauses=st.lists(st.floats(0, 1, width=16), min_size=1, max_size=60),
    holds=st.lists(st.floats(0, 1, width=16), min_size=1, max_size=7),
    scale=st.sampled_from([0.001, 0.05, 1.0]),
)
def test_no_window_is_overdrawn_however_calls_are_taken_and_held(
    calls: int,
    burst: int | None,
    per: int,
    pauses: list[float],
    holds: list[float],
    scale: float,
) -> None:
    """Takers who take all that there is, and make each call as late as they may."""
    burst = None if burst is None else min(burst, max(1, calls // 2))
    budget = check(Budget("app", calls, timedelta(seconds=per), burst))
    now, level, made = 0.0, float(budget.capacity), list[float]()
    for number, pause in enumerate(pauses * 20):
        now += pause * per * scale
        level = min(budget.capacity, level + pause * per * scale * budget.rate)
        taken = int(level)
        level -= taken
        held = holds[number % len(holds)] * budget.hold.total_seconds()
        made += [now + held] * taken

    assert busiest_window(made, per) <= calls


@pytest.mark.parametrize(
    ("calls", "per"), [(5000, "1h"), (5000, "60s"), (5000, "36s"), (900, "60s"), (60, "1h")]
)
def test_nearly_all_is_used_while_there_is_work(calls: int, per: str) -> None:
    budget = Budget("app", calls, read_span(per))

    assert budget.rate * budget.per.total_seconds() >= 0.97 * calls


def test_a_single_call_flows_back_after_its_span() -> None:
    budget = Budget("app", 1, HOUR)

    assert 1 / budget.rate == pytest.approx(3601)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1h", 3600), ("15m", 900), ("60s", 60), ("90", 90), (2.5, 2.5), ("1d", 86_400)],
)
def test_spans_are_written_in_the_usual_ways(text: str | float, seconds: float) -> None:
    assert read_span(text).total_seconds() == seconds


@pytest.mark.parametrize("text", ["", "soon", "-1s", "1 week", True, "1e9h", "32d", "nan"])
def test_other_spans_are_refused(text: str) -> None:
    with pytest.raises(Invalid, match="per"):
        read_span(text)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"calls": 0}, "calls"),
        ({"calls": -1}, "calls"),
        ({"calls": 2_000_000_000}, "calls"),
        ({"per": timedelta(milliseconds=1)}, "per"),
        ({"per": timedelta(days=400)}, "per"),
        ({"burst": 0}, "burst"),
        ({"burst": 51}, "burst"),
        ({"scope": ""}, "scope"),
        ({"scope": " a"}, "scope"),
        ({"scope": "a\nb"}, "scope"),
        ({"scope": "a:{user}"}, "scope"),
        ({"scope": "a:{tenant}:{connection}"}, "scope"),
        ({"scope": "a}"}, "scope"),
        ({"scope": "a/b"}, "scope"),
        ({"scope": "a" * 201}, "scope"),
        ({"providers": ("a" * 101,)}, "providers"),
        ({"providers": ("a\nb",)}, "providers"),
    ],
)
def test_a_budget_out_of_bounds_is_refused(changes: dict[str, object], field: str) -> None:
    values: dict[str, object] = {"scope": "app", "calls": 100, "per": HOUR}
    with pytest.raises(Invalid) as refused:
        check(Budget(**{**values, **changes}))  # type: ignore[arg-type]

    assert refused.value.field == field


@pytest.mark.parametrize(
    ("scope", "provider", "members"),
    [
        ("github", "github", Members.ALL),
        ("github:{connection}", "github", Members.CONNECTION),
        ("google.{tenant}", "google", Members.TENANT),
        ('it\'s "quoted"; --', 'it\'s "quoted"; --', Members.ALL),
    ],
)
def test_a_scope_names_its_provider_and_its_members(
    scope: str, provider: str, members: Members
) -> None:
    assert default_provider(scope) == provider
    assert check(Budget(scope, 1)).providers == (provider,)
    assert Budget(scope, 1).members is members


def test_the_operator_comes_before_the_settings_and_those_before_the_connector() -> None:
    budgets = [
        Budget("a", 1, source=Source.CONNECTOR, is_reported=True),
        Budget("a", 2, source=Source.OPERATOR),
        Budget("a", 3, source=Source.SETTINGS),
        Budget("b", 4, source=Source.CONNECTOR),
        Budget("b", 5, source=Source.SETTINGS),
        Budget("c", 6, source=Source.SETTINGS),
        Budget("c", None, source=Source.OPERATOR),
    ]

    chosen = in_force(budgets)

    assert {scope: one.calls for scope, one in chosen.items()} == {"a": 2, "b": 5}
    assert chosen["a"].is_reported, "only the connector knows of which scope the headers speak"


def test_a_call_counts_in_all_budgets_of_its_provider() -> None:
    budgets = {
        "google": Budget("google", 10, providers=("mail", "calendar")),
        "mail:{tenant}": Budget("mail:{tenant}", 5, providers=("mail",)),
    }

    found = by_provider(budgets)

    assert [one.scope for one in found["mail"]] == ["google", "mail:{tenant}"]
    assert [one.scope for one in found["calendar"]] == ["google"]


def test_a_connector_declares_limits() -> None:
    [budget] = declared_by("github", [Limit("github:{connection}", 5000, "1h", 1000)])

    assert (budget.calls, budget.per, budget.capacity) == (5000, HOUR, 1000)
    assert (budget.providers, budget.source) == (("github",), Source.CONNECTOR)


def test_the_shortage_that_lasts_longest_is_named() -> None:
    now = at("12:00")
    hour = Budget("hour", 3600, HOUR)
    day = Budget("day", 10, timedelta(days=1))
    buckets = [Bucket("hour", "", 0, now), Bucket("day", "", 0, now), Bucket("else", "", 0, now)]

    short = find_shortage([hour, day, Budget("fresh", 1)], buckets, now)

    assert short == Shortage("day", 10, timedelta(days=1), short.room_at if short else now)
    assert short.room_at == now + timedelta(seconds=1 / day.rate)


def test_what_a_provider_has_left_limits_the_room_until_its_reset() -> None:
    now, reset = at("12:00"), at("12:30")
    budget = Budget("app", 1000, HOUR)
    bucket = Bucket("app", "", 10, now, left_calls=0, left_until=reset)

    assert bucket.room(budget, now) == 0
    assert bucket.room_at(budget, now) == reset
    assert bucket.room(budget, reset) == 10
