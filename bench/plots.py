"""Bar charts as plain SVG, readable on light and dark pages."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from bench.results import Spread, shown

WIDTH, LABEL_WIDTH, VALUE_WIDTH = 760, 250, 150
BAR, GAP, TOP = 20, 10, 44
TEXT, OURS, THEIRS, WHISKER = "#6e7781", "#2f81f7", "#8c959f", "#d1242f"


@dataclass(frozen=True)
class Bar:
    label: str
    value: Spread
    is_ours: bool


def bar_chart(title: str, unit: str, bars: Sequence[Bar]) -> str:
    """Return horizontal bars of the medians, with a line from the least to the greatest value."""
    height = TOP + len(bars) * (BAR + GAP) + GAP
    scale = (WIDTH - LABEL_WIDTH - VALUE_WIDTH) / max(bar.value.high for bar in bars)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"'
        f' font-family="system-ui, sans-serif" font-size="13" fill="{TEXT}">',
        f"<title>{escape(title)}</title>",
        f'<text x="0" y="18" font-size="15" font-weight="600">{escape(title)}</text>',
        f'<text x="{WIDTH}" y="18" text-anchor="end">{escape(unit)}</text>',
    ]
    for place, bar in enumerate(bars):
        lines += _draw(bar, TOP + place * (BAR + GAP), scale)
    return "\n".join([*lines, "</svg>", ""])


def _draw(bar: Bar, top: int, scale: float) -> list[str]:
    middle, text = top + BAR / 2, top + BAR * 0.72
    length = bar.value.median * scale
    low, high = (LABEL_WIDTH + end * scale for end in (bar.value.low, bar.value.high))
    end = max(high, LABEL_WIDTH + length)
    return [
        f'<text x="{LABEL_WIDTH - 8}" y="{text:.0f}" text-anchor="end">{escape(bar.label)}</text>',
        f'<rect x="{LABEL_WIDTH}" y="{top}" width="{length:.1f}" height="{BAR}" rx="2"'
        f' fill="{OURS if bar.is_ours else THEIRS}"/>',
        f'<path d="M{low:.1f} {middle:.0f}H{high:.1f}" stroke="{WHISKER}" stroke-width="2"/>',
        f'<text x="{end + 8:.1f}" y="{text:.0f}">{shown(bar.value.median)}</text>',
    ]
