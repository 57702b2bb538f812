"""The axes of a plot over time, as SVG."""

from collections.abc import Iterable
from dataclasses import dataclass

WIDTH, LEFT, RIGHT, TOP, HEIGHT = 1200, 90, 20, 30, 260
BOTTOM = TOP + HEIGHT
GRID = 5
STYLE = """
    text { font: 12px sans-serif; fill: #444 } .grid { stroke: #ddd }
    polyline { fill: none; stroke: #1565c0; stroke-width: 1.5 }
    .mark { fill: #c62828; opacity: .55 } .mark:hover { opacity: 1 }
"""
Points = Iterable[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Axes:
    """Seconds from the left to the right, a rate from the bottom to the top."""

    seconds: float
    highest: float

    def x(self, seconds: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * min(max(seconds / self.seconds, 0), 1)

    def y(self, rate: float) -> float:
        return TOP + HEIGHT * (1 - rate / self.highest)

    def line(self, points: Points, colour: str = "#1565c0") -> str:
        places = " ".join(f"{self.x(at):.1f},{self.y(rate):.1f}" for at, rate in points)
        return f'<polyline style="stroke: {colour}" points="{places}"/>'

    def grid(self) -> list[str]:
        lines = []
        for step in range(GRID + 1):
            rate, seconds = self.highest * step / GRID, self.seconds * step / GRID
            lines.append(
                f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{self.y(rate):.1f}"'
                f' y2="{self.y(rate):.1f}"/>'
                f'<text x="{LEFT - 40}" y="{self.y(rate) + 4:.1f}">{rate:.0f}</text>'
                f'<text x="{self.x(seconds) - 14:.1f}" y="{BOTTOM + 18}">{seconds:.0f} s</text>'
            )
        return lines


def as_svg(title: str, height: int, parts: Iterable[str]) -> str:
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}">',
            f"<style>{STYLE}</style>",
            f'<text x="{LEFT}" y="18">{title}</text>',
            *parts,
            "</svg>\n",
        ]
    )
