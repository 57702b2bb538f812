"""The geometry of charts. The templates draw them as SVG, without scripts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

HEIGHT = 100.0
SLOT = 10.0
GAP = 2.0
LEAST = 1.5  # the smallest visible bar


@dataclass(frozen=True, slots=True)
class Rectangle:
    kind: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Column:
    """The bars of one slot, and its tooltip."""

    title: str
    bars: Sequence[Rectangle]
    x: float


@dataclass(frozen=True, slots=True)
class Chart:
    columns: Sequence[Column]
    width: float
    top: int


@dataclass(frozen=True, slots=True)
class Entry:
    title: str
    values: Mapping[str, float]


def stack(entries: Sequence[Entry], *, slots: int = 0) -> Chart:
    """Return columns of stacked bars, scaled to the highest.

    With fewer entries than slots, the slots on the left stay empty.
    """
    top = round_up(max((sum(entry.values.values()) for entry in entries), default=0))
    columns, empty = [], max(slots - len(entries), 0)
    for place, entry in enumerate(entries, start=empty):
        x, y, bars = place * SLOT, HEIGHT, []
        for kind, value in entry.values.items():
            if not value:
                continue
            height = max(value / top * HEIGHT, LEAST)
            y = max(y - height, 0)
            bars.append(Rectangle(kind, round(x, 2), round(y, 2), SLOT - GAP, round(height, 2)))
        columns.append(Column(entry.title, bars, round(x, 2)))
    return Chart(columns, max(len(entries), slots, 1) * SLOT - GAP, top)


def row(shares: Mapping[str, int]) -> list[Rectangle]:
    """Return one bar of width 100, divided by shares."""
    whole = sum(shares.values()) or 1
    bars, x = [], 0.0
    for kind, share in shares.items():
        if share:
            width = share / whole * 100
            bars.append(Rectangle(kind, round(x, 3), 0, round(max(width, 0.4), 3), 1))
            x += width
    return bars


def round_up(value: float) -> int:
    """Return the next 1, 2 or 5 times a power of ten that is at least the value."""
    step = 1
    while True:
        for factor in (1, 2, 5):
            if factor * step >= value:
                return factor * step
        step *= 10
