"""Throughput over time with the faults marked below it, as an SVG."""

from collections.abc import Callable, Sequence
from html import escape

from faults.record import Injection, Record, Sample

WIDTH, LEFT, RIGHT, TOP, PLOT, ROW = 1200, 90, 20, 30, 260, 16
SMOOTHING_SECONDS = 2.0
GRID = 5
STYLE = """
    text { font: 12px sans-serif; fill: #444 } .grid { stroke: #ddd }
    .rate { fill: none; stroke: #1565c0; stroke-width: 1.5 }
    .fault { fill: #c62828; opacity: .55 } .fault:hover { opacity: 1 }
"""
Scale = Callable[[float], float]


def draw(record: Record) -> str:
    """Return the drawing; hovering over a fault shows its name."""
    rates = throughput(record.samples)
    length = max((at for at, _ in rates), default=1.0)
    highest = max((rate for _, rate in rates), default=1.0) or 1.0

    def x(seconds: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * min(seconds / length, 1)

    def y(rate: float) -> float:
        return TOP + PLOT * (1 - rate / highest)

    families = sorted({one.family for one in record.injections})
    height = TOP + PLOT + 30 + ROW * len(families) + 10
    points = " ".join(f"{x(at):.1f},{y(rate):.1f}" for at, rate in rates)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}">',
        f"<style>{STYLE}</style>",
        f'<text x="{LEFT}" y="18">signals stored per second, and the faults below</text>',
        *_grid(x, y, length, highest),
        f'<polyline class="rate" points="{points}"/>',
    ]
    for number, family in enumerate(families):
        top = TOP + PLOT + 30 + ROW * number
        parts.append(f'<text x="8" y="{top + 11}">{escape(family)}</text>')
        parts += [_mark(one, x, top) for one in record.injections if one.family == family]
    return "\n".join([*parts, "</svg>"]) + "\n"


def throughput(samples: Sequence[Sample]) -> list[tuple[float, float]]:
    """Return the rate at each sample, over the seconds before it; empty samples have none."""
    known = [(sample.at, sample.signals) for sample in samples if sample.signals is not None]
    rates, first = [], 0
    for at, signals in known:
        while known[first][0] < at - SMOOTHING_SECONDS and known[first + 1][0] < at:
            first += 1
        since, before = known[first]
        rates.append((at, max(signals - before, 0) / (at - since) if at > since else 0.0))
    return rates


def _grid(x: Scale, y: Scale, length: float, highest: float) -> list[str]:
    lines = []
    for step in range(GRID + 1):
        rate, seconds = highest * step / GRID, length * step / GRID
        lines.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(rate):.1f}"'
            f' y2="{y(rate):.1f}"/><text x="{LEFT - 40}" y="{y(rate) + 4:.1f}">{rate:.0f}</text>'
            f'<text x="{x(seconds) - 14:.1f}" y="{TOP + PLOT + 18}">{seconds:.0f} s</text>'
        )
    return lines


def _mark(injection: Injection, x: Scale, top: float) -> str:
    left, right = x(injection.began), x(injection.ended)
    return (
        f"<g><title>{escape(injection.kind)}, {injection.began:.1f} s</title>"
        f'<rect class="fault" x="{left:.1f}" y="{top + 2}" width="{max(right - left - 0.5, 1):.1f}"'
        f' height="{ROW - 4}"/></g>'
    )
