"""Throughput over time with the faults marked below it, as an SVG."""

from collections.abc import Sequence
from html import escape

from faults.chart import BOTTOM, Axes, as_svg
from faults.record import Injection, Record, Sample

ROW = 16
SMOOTHING_SECONDS = 2.0


def draw(record: Record) -> str:
    """Return the drawing; hovering over a fault shows its name."""
    rates = throughput(record.samples)
    length = max((at for at, _ in rates), default=1.0)
    axes = Axes(length, max((rate for _, rate in rates), default=1.0) or 1.0)
    families = sorted({one.family for one in record.injections})
    parts = [*axes.grid(), axes.line(rates)]
    for number, family in enumerate(families):
        top = BOTTOM + 30 + ROW * number
        parts.append(f'<text x="8" y="{top + 11}">{escape(family)}</text>')
        parts += [_mark(one, axes, top) for one in record.injections if one.family == family]
    height = BOTTOM + 40 + ROW * len(families)
    return as_svg("signals stored per second, and the faults below", height, parts)


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


def _mark(injection: Injection, axes: Axes, top: float) -> str:
    left, right = axes.x(injection.began), axes.x(injection.ended)
    return (
        f"<g><title>{escape(injection.kind)}, {injection.began:.1f} s</title>"
        f'<rect class="mark" x="{left:.1f}" y="{top + 2}" width="{max(right - left - 0.5, 1):.1f}"'
        f' height="{ROW - 4}"/></g>'
    )
