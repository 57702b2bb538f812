"""Throughput over time with the faults marked, as an SVG."""

from collections.abc import Sequence
from html import escape

from faults.record import Injection, Record, Sample

WIDTH, HEIGHT = 1200, 360
LEFT, RIGHT, TOP, BOTTOM = 60, 20, 30, 40
SMOOTHING_SECONDS = 2.0
GRID = 5
STYLE = """
    text { font: 12px sans-serif; fill: #444 } .grid { stroke: #ddd }
    .rate { fill: none; stroke: #1565c0; stroke-width: 1.5 } .fault { fill: #c62828; opacity: .12 }
    .mark { stroke: #c62828; opacity: .5 }
"""


def draw(record: Record) -> str:
    """Return the drawing; hovering over a fault tells which it was."""
    rates = throughput(record.samples)
    length = max((at for at, _ in rates), default=1.0)
    highest = max((rate for _, rate in rates), default=1.0) or 1.0

    def x(seconds: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * min(seconds / length, 1)

    def y(rate: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * rate / highest

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}">',
        f"<style>{STYLE}</style>",
        f'<text x="{LEFT}" y="18">signals stored per second; each red band is a fault</text>',
    ]
    for step in range(GRID + 1):
        rate, seconds = highest * step / GRID, length * step / GRID
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(rate):.1f}"'
            f' y2="{y(rate):.1f}"/><text x="8" y="{y(rate) + 4:.1f}">{rate:.0f}</text>'
            f'<text x="{x(seconds) - 10:.1f}" y="{HEIGHT - 15}">{seconds:.0f} s</text>'
        )
    parts += [_band(one, x(one.began), x(one.ended)) for one in record.injections]
    points = " ".join(f"{x(at):.1f},{y(rate):.1f}" for at, rate in rates)
    parts.append(f'<polyline class="rate" points="{points}"/></svg>')
    return "\n".join(parts) + "\n"


def throughput(samples: Sequence[Sample]) -> list[tuple[float, float]]:
    """Return the rate at each sample, over the seconds before it; none where nobody could ask."""
    known = [(sample.at, sample.signals) for sample in samples if sample.signals is not None]
    rates, first = [], 0
    for at, signals in known:
        while known[first][0] < at - SMOOTHING_SECONDS and known[first + 1][0] < at:
            first += 1
        since, before = known[first]
        rates.append((at, max(signals - before, 0) / (at - since) if at > since else 0.0))
    return rates


def _band(injection: Injection, left: float, right: float) -> str:
    width = max(right - left, 1)
    return (
        f"<g><title>{escape(injection.kind)} at {injection.began:.1f} s</title>"
        f'<rect class="fault" x="{left:.1f}" y="{TOP}" width="{width:.1f}"'
        f' height="{HEIGHT - TOP - BOTTOM}"/><line class="mark" x1="{left:.1f}" x2="{left:.1f}"'
        f' y1="{TOP}" y2="{HEIGHT - BOTTOM}"/></g>'
    )
