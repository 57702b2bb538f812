"""The tables that the suite prints, and whether every bound was kept."""

from collections.abc import Sequence

from fleet.times import MOST_SECONDS, Timing
from fleet.watch import NAMED_WITHIN_SECONDS, TROUBLES, Sightings


def is_kept(seen: Sightings, timings: Sequence[Timing], complaints: Sequence[str]) -> bool:
    return not complaints and all(one.is_kept for one in (*seen, *timings))


def told_by(seen: Sightings) -> str:
    """Return the table of who is named where, and after how long."""
    lines = [
        f"| trouble | where | named after (≤ {NAMED_WITHIN_SECONDS:g} s) | in looks since | says |",
        "|---|---|---:|---:|---|",
    ]
    for one in seen:
        after = "never" if one.first_after is None else f"{one.first_after:.1f} s"
        mark = "" if one.is_kept else " **missed**"
        lines.append(
            f"| {one.trouble} {TROUBLES[one.trouble]} | {one.surface} | {after}{mark}"
            f" | {one.named} of {one.looks} | {one.sentence} |"
        )
    return "\n".join(lines) + "\n"


def taken_by(timings: Sequence[Timing]) -> str:
    """Return the table of how long pages and routes take, the slowest first."""
    lines = [
        f"| page or route | p50, ms | max, ms (≤ {1000 * MOST_SECONDS:g}) |",
        "|---|---:|---:|",
    ]
    for timing in sorted(timings, key=lambda one: -one.most):
        mark = "" if timing.is_kept else " **missed**"
        lines.append(
            f"| {timing.path} | {1000 * timing.p50:.0f} | {1000 * timing.most:.0f}{mark} |"
        )
    return "\n".join(lines) + "\n"
