"""What the fairness suite concludes from times, and what its provider answers."""

import math

import pytest
from fairness.cases import load_cases
from fairness.measure import (
    Figure,
    excess_over_ramp,
    fullest_window,
    percentile,
    seconds_until_rate,
)
from fairness.model import simulate
from fairness.plot import Plot, per_second
from fairness.provider import Application, Limit


@pytest.mark.parametrize(
    ("times", "most"),
    [
        pytest.param([], 0, id="none"),
        pytest.param([0, 1, 2], 2, id="a span ends before its last moment"),
        pytest.param([0, 9, 9.5, 10, 10.5], 4, id="across seconds"),
        pytest.param([5, 0, 5.5], 2, id="in any order"),
    ],
)
def test_the_fullest_window_is_the_one_with_most_calls(times: list[float], most: int) -> None:
    assert fullest_window(times, 2) == most


def test_a_start_above_the_ramp_is_seen() -> None:
    # At one start a second, 7.2 may have started after five seconds.
    at_the_curve = [10 + 5 * math.log2(1 + number * math.log(2) / 5) for number in range(1, 8)]

    assert excess_over_ramp(at_the_curve, 10, 1) == pytest.approx(0, abs=1e-5)
    assert excess_over_ramp([*at_the_curve, 10.1], 10, 1) > 0.8


def test_a_rate_is_reached_when_it_is_seen_over_a_while() -> None:
    slow, fast = [float(second) for second in range(10)], [10 + n / 10 for n in range(50)]

    assert seconds_until_rate(slow, 0, 2) == math.inf
    assert seconds_until_rate([*slow, *fast], 0, 2) == pytest.approx(10.5)


def test_a_percentile_is_one_of_the_values() -> None:
    assert percentile([3, 1, 2, 4], 0.99) == 4
    assert percentile([], 0.99) == 0


def test_a_figure_says_whether_it_keeps_its_bound() -> None:
    assert not Figure("calls", 61, at_most=60).is_kept
    assert not Figure("share used", 0.94, at_least=0.95).is_kept
    assert str(Figure("wait", 1.5, 2, unit="s")) == "wait 1.5 s (≤ 2)"


def test_the_provider_limits_calls_in_any_window() -> None:
    limit = Limit(calls=2, per_seconds=10)

    waits = [limit.wait(now) for now in (0.0, 4.0, 9.0, 10.0)]

    assert waits == [0, 0, 1, 0]


async def test_the_provider_counts_every_call_and_says_how_it_answered() -> None:
    answers: list[bytes] = []
    application = Application(latency_seconds=0)
    await application.limit_next(times=1, seconds=60, scope="app")

    application.answer("/one?after=3", answers.append)
    application.answer("/two", answers.append)
    told = await application.tell(0)

    assert [call[1:] for call in told] == [("one", 3, 429), ("two", 0, 200)]


def test_a_plot_names_its_lines_and_its_spans() -> None:
    lines = {"calls & answers": per_second([1.0, 1.5, 3.2], 1.0, 4.0)}

    drawing = Plot("calls", "calls per second", lines, [("down", 1, 2)]).draw()

    assert lines["calls & answers"] == [(0, 2), (1, 0), (2, 1)]
    assert "calls &amp; answers" in drawing
    assert ">down<" in drawing


def test_cases_have_different_names() -> None:
    names = [case.name for case in load_cases()]

    assert len(set(names)) == len(names)


def test_in_the_model_a_flood_delays_nobody_and_takes_no_longer() -> None:
    fair, by_time = simulate(is_fair=True), simulate(is_fair=False)

    assert fair.p99 < 0.1
    assert by_time.p99 > 30
    # Small tenants' jobs run during the flood instead of after it.
    assert fair.makespan < 1.03 * by_time.makespan
