"""The lines of ready jobs that a process remembers: what a claim reads, and from where."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from syncline.policy.lines import BEFORE_ALL, EMPTY_LOOKS, FIRST_ID, Line, Lines, Look

NOON = datetime(2025, 1, 1, 12, tzinfo=UTC)
AN_ID = UUID(int=7)


def look(
    priority: int, *, provider: str = "github", seconds: float = 0, is_empty: bool = False
) -> Look:
    return Look(Line(provider, priority, NOON, AN_ID), is_empty, seconds)


def gaps(lines: Lines) -> list[tuple[str, int, int]]:
    return list(zip(*lines.columns(from_start=True).gaps, strict=True))


def known(lines: Lines, *, from_start: bool = False) -> list[tuple[str, int, datetime, UUID]]:
    return list(zip(*lines.columns(from_start=from_start).known, strict=True))


def test_at_first_each_provider_is_one_gap() -> None:
    lines = Lines(["github", "tickets"])

    assert gaps(lines) == [("github", -32769, 32768), ("tickets", -32769, 32768)]
    assert known(lines) == []


def test_every_priority_is_known_or_in_a_gap() -> None:
    lines = Lines(["github"])
    assert lines.learn([look(0), look(32767), look(-32768), look(1)])

    priorities = {priority for _, priority, *_ in known(lines)}
    in_gaps = {number for _, below, above in gaps(lines) for number in range(below + 1, above)}
    assert priorities | in_gaps == set(range(-32768, 32768))
    assert not priorities & in_gaps


def test_a_line_that_was_known_is_not_new() -> None:
    lines = Lines(["github"])
    assert lines.learn([look(0)])
    assert not lines.learn([look(0)])
    assert lines.learn([look(0), look(10)])


def test_a_line_is_read_from_its_very_start_or_from_where_it_began() -> None:
    lines = Lines(["github"])
    lines.learn([look(0)])

    assert known(lines, from_start=True) == [("github", 0, BEFORE_ALL, FIRST_ID)]
    assert known(lines) == [("github", 0, NOON, AN_ID)]


def test_a_cheap_look_from_the_very_start_is_part_of_every_claim() -> None:
    lines = Lines(["github"])
    lines.note_start([look(0, seconds=0.0009)], monotonic=100)
    assert lines.is_start_due(100, is_idle=False)


def test_costly_looks_from_the_very_start_take_a_twentieth_of_the_time() -> None:
    lines = Lines(["github"])
    lines.note_start([look(0, seconds=0.002), look(10, seconds=0.01)], monotonic=100)
    assert not lines.is_start_due(100.199, is_idle=False)
    assert lines.is_start_due(100.2, is_idle=False)


@pytest.mark.parametrize(("is_idle", "longest"), [(True, 1), (False, 3)])
def test_a_look_from_the_very_start_is_not_put_off_for_long(is_idle: bool, longest: float) -> None:
    """A job that came before its line began waits for it, in an order that is not its own."""
    lines = Lines(["github"])
    lines.note_start([look(0, seconds=9)], monotonic=100)
    assert not lines.is_start_due(99.9 + longest, is_idle=is_idle)
    assert lines.is_start_due(100 + longest, is_idle=is_idle)


def test_starting_over_does_not_wait() -> None:
    lines = Lines(["github"])
    lines.note_start([look(0, seconds=9)], monotonic=100)
    lines.start_over()
    assert lines.is_start_due(100, is_idle=False)


def test_a_line_that_is_empty_for_long_is_forgotten() -> None:
    lines = Lines(["github"])
    for _ in range(EMPTY_LOOKS):
        looks = [look(0), look(10, is_empty=True)]
        lines.learn(looks)
        lines.note_start(looks, monotonic=100)

    assert [priority for _, priority, *_ in known(lines)] == [0]
    assert gaps(lines) == [("github", 0, 32768), ("github", -32769, 0)]


def test_a_line_whose_past_is_costly_to_read_over_is_kept() -> None:
    """In a gap, every claim would read over it."""
    lines = Lines(["github"])
    for _ in range(EMPTY_LOOKS + 1):
        looks = [look(10, is_empty=True, seconds=0.01)]
        lines.learn(looks)
        lines.note_start(looks, monotonic=100)

    assert [priority for _, priority, *_ in known(lines)] == [10]
