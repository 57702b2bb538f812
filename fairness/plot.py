"""Calls per second over time, and what should be below or above them, as an SVG."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from faults.chart import BOTTOM, LEFT, TOP, Axes, Points, as_svg

COLOURS = ("#1565c0", "#c62828", "#2e7d32", "#ef6c00", "#6a1b9a", "#00838f")


@dataclass(frozen=True, slots=True)
class Plot:
    """Lines over time, each with a name; spans are marked behind them."""

    name: str  # of its file
    title: str
    lines: Mapping[str, Sequence[tuple[float, float]]]
    spans: Sequence[tuple[str, float, float]] = field(default_factory=list)

    def draw(self) -> str:
        points = [point for line in self.lines.values() for point in line]
        axes = Axes(
            max((at for at, _ in points), default=1.0) or 1.0,
            max((rate for _, rate in points), default=1.0) or 1.0,
        )
        parts = [_span(axes, *span) for span in self.spans] + axes.grid()
        for number, (name, line) in enumerate(self.lines.items()):
            colour, left = COLOURS[number % len(COLOURS)], LEFT + 280 * number
            parts.append(axes.line(line, colour))
            parts.append(
                f'<text x="{left}" y="{BOTTOM + 40}" style="fill: {colour}">{escape(name)}</text>'
            )
        return as_svg(escape(self.title), BOTTOM + 52, parts)


def per_second(times: Sequence[float], began: float, ended: float) -> list[tuple[float, float]]:
    """Return how many events fell into each second."""
    counts = Counter(int(at - began) for at in times if began <= at < ended)
    return [(float(second), float(counts[second])) for second in range(int(ended - began))]


def step_line(level: float, seconds: float) -> Points:
    """Return a level as a line."""
    return [(0.0, level), (seconds, level)]


def _span(axes: Axes, name: str, began: float, ended: float) -> str:
    left, right = axes.x(began), axes.x(ended)
    return (
        f'<rect x="{left:.1f}" y="{TOP}" width="{max(right - left, 1):.1f}"'
        f' height="{BOTTOM - TOP}" style="fill: #eee"/>'
        f'<text x="{left + 4:.1f}" y="{TOP + 14}">{escape(name)}</text>'
    )
