"""The charts of a period: runs, signals, durations, delays and backlog."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from syncline.api.dashboard.charts import Chart, Entry, stack
from syncline.api.dashboard.formats import moment, number, seconds
from syncline.policy.figures import SUCCEEDED, Point
from syncline.policy.stats import History

OUTCOMES = {"good": "succeeded", "open": "rate limited", "bad": "failed, or to be retried"}


@dataclass(frozen=True, slots=True)
class Drawing:
    """A chart with its title, the meaning of its colours, and what its top stands for."""

    name: str
    title: str
    keys: Mapping[str, str]
    chart: Chart
    top: str


def draw_history(history: History) -> list[Drawing]:
    """Return the charts of a period: runs, signals, durations, delays and backlog."""
    points = history.points
    runs = [{kind: _count(point, kind) for kind in OUTCOMES} for point in points]
    return [
        _drawing("runs", "Runs that ended", OUTCOMES, runs, points),
        _drawing(
            "signals",
            "Signals stored",
            {"signals": "stored"},
            [{"signals": point.signals} for point in points],
            points,
        ),
        _times(
            "durations",
            "Duration",
            [(one.duration_p50, one.duration_p95) for one in points],
            points,
        ),
        _times(
            "delays",
            "From due to start",
            [(one.delay_p50, one.delay_p95) for one in points],
            points,
        ),
        _drawing(
            "backlog",
            "Most jobs due at once",
            {"open": "due"},
            [{"open": point.backlog} for point in points],
            points,
        ),
    ]


def _count(point: Point, kind: str) -> int:
    good, limited = point.outcomes.get(SUCCEEDED, 0), point.outcomes.get("RateLimited", 0)
    counts = {"good": good, "open": limited, "bad": sum(point.outcomes.values()) - good - limited}
    return counts[kind]


def _drawing(
    name: str,
    title: str,
    keys: Mapping[str, str],
    values: Sequence[Mapping[str, int]],
    points: Sequence[Point],
) -> Drawing:
    def told(value: Mapping[str, int]) -> str:
        shown = [f"{number(value[key])} {label}" for key, label in keys.items() if value[key]]
        return ", ".join(shown) or "none"

    entries = [
        Entry(f"{moment(point.at)} UTC: {told(value)}", value)
        for point, value in zip(points, values, strict=True)
    ]
    drawn = stack(entries)
    return Drawing(name, title, keys, drawn, number(drawn.top))


def _times(
    name: str,
    title: str,
    values: Sequence[tuple[float | None, float | None]],
    points: Sequence[Point],
) -> Drawing:
    """Return a chart of two percentiles, one on top of the other, in milliseconds."""

    def told(half: float | None, most: float | None) -> str:
        if half is None or most is None:
            return "no runs"
        return f"half within {seconds(half)}, 95 % within {seconds(most)}"

    entries = [
        Entry(
            f"{moment(point.at)} UTC: {told(half, most)}",
            {"good": 1000 * (half or 0), "open": 1000 * ((most or 0) - (half or 0))},
        )
        for point, (half, most) in zip(points, values, strict=True)
    ]
    drawn = stack(entries)
    keys = {"good": "half of the runs", "open": "95 %"}
    return Drawing(name, title, keys, drawn, seconds(drawn.top / 1000))
