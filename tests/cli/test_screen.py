"""The view that `up` draws, and the lines it prints where there is no terminal."""

import io
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from support.world import at
from syncline.cli.views.live import Journal
from syncline.cli.views.screen import FEWEST_ROWS, Snapshot, name_of, render, share_out
from syncline.policy.stats import (
    Activity,
    Attempt,
    ConnectionRef,
    Counts,
    Figure,
    LatestSignal,
    NextRun,
    Overview,
    Trouble,
)

NOW = at("12:00")
DESK = ("acme", "demo", "support-desk", uuid4())
ATTEMPT = Attempt(
    *DESK, uuid4(), "incremental", "succeeded", 0, at("11:59:50"), at("11:59:52"), None
)
FAILED = replace(
    ATTEMPT, status="failed", error={"class": "Permanent", "message": "closed \x1b[2J by its owner"}
)
TROUBLE = Trouble(
    *DESK, "backoff", {"class": "RateLimited", "message": "slow down"}, NOW, 2, at("12:01")
)
NOTHING = Snapshot(
    Overview(NOW, Counts(Figure(0), {"active": Figure(0)}, Figure(0)), {}, {}, {}, [], []),
    Activity(NOW, {}, 0, 0, [], [], [], []),
)
COUNTS = Counts(Figure(1201), {"active": Figure(1200), "error": Figure(1)}, Figure(4321))
SNAPSHOT = Snapshot(
    replace(NOTHING.overview, counts=COUNTS, troubles=[TROUBLE] * 40),
    replace(
        NOTHING.activity,
        pending_jobs={"queued": Figure(3)},
        recent=[ATTEMPT, FAILED] * 20,
        next_runs=[NextRun(*DESK, at("12:00:30"), 0)] * 40,
        signals=[LatestSignal(*DESK, "ticket_created", at("11:59"), '{"ticket": "T-1"}')] * 40,
    ),
)


def changed(snapshot: Snapshot, **changes: Any) -> Snapshot:
    return replace(snapshot, overview=replace(snapshot.overview, **changes))


def drawn(
    snapshot: Snapshot, problem: str = "", *, width: int = 100, height: int = 30
) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height)
    console.print(render(snapshot, "http://127.0.0.1:8080", problem, width=width, height=height))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_it_shows_counts_jobs_runs_troubles_and_signals() -> None:
    text = "\n".join(drawn(SNAPSHOT, width=140))

    assert "http://127.0.0.1:8080" in text
    assert "1,201 connections: 1,200 active, 1 error; jobs: 3 queued; 4,321 signals" in text
    for words in (
        "acme support-desk  succeeded  10 s ago  2.0 s",
        "acme support-desk  in 30 s",
        "acme support-desk  backoff  in 1 min  RateLimited: slow down",
        'acme support-desk  ticket_created  1 min ago  {"ticket": "T-1"}',
        r"failed  10 s ago  Permanent: closed \x1b[2J by its owner",
    ):
        assert " ".join(words.split()) in " ".join(text.split())


@pytest.mark.parametrize("height", [24, 30, 50, 120])
@pytest.mark.parametrize("width", [60, 80, 200])
def test_it_fits_the_terminal(width: int, height: int) -> None:
    lines = drawn(
        SNAPSHOT, "The database does not answer: TimeoutError", width=width, height=height
    )

    assert len(lines) < height
    assert len(lines[-1]) <= width - len("^C")  # what Ctrl-C leaves on the last line breaks nothing


def test_a_problem_is_shown() -> None:
    assert "The database does not answer" in "\n".join(
        drawn(SNAPSHOT, "The database does not answer")
    )


def test_a_count_that_is_not_exact_says_so() -> None:
    counts = Counts(
        Figure(2_000_000, "estimate"), {"active": Figure(20_000, "at_least")}, Figure(7)
    )

    assert drawn(changed(NOTHING, counts=counts))[1] == (
        "≈ 2,000,000 connections: ≥ 20,000 active; jobs: none; 7 signals"
    )


def test_an_empty_database_has_a_view_too() -> None:
    assert drawn(NOTHING)[1] == "0 connections: none; jobs: none; 0 signals"


@given(st.lists(st.integers(0, 60), max_size=4), st.integers(0, 100))
def test_rows_are_shared_out(wanted: Sequence[int], room: int) -> None:
    given = share_out(wanted, room)

    assert all(got <= want for got, want in zip(given, wanted, strict=True))
    assert sum(given) == min(sum(wanted), max(room, FEWEST_ROWS * len(wanted)))
    satisfied = [got for got, want in zip(given, wanted, strict=True) if got == want]
    short = [got for got, want in zip(given, wanted, strict=True) if got < want]
    assert not short or max(short) - min(short) <= 1
    assert not short or all(got <= max(short) + 1 for got in satisfied)


def test_of_a_long_name_the_end_is_kept() -> None:
    repository = ConnectionRef(
        "acme", "git", "/home/somebody/projects/with/a/long/way/to/it", uuid4()
    )

    assert name_of(repository, 30) == "acme …ts/with/a/long/way/to/it"
    assert len(name_of(repository, 30)) <= 30


def test_a_line_is_printed_only_for_news() -> None:
    journal = Journal()
    later = changed(SNAPSHOT, now=NOW + timedelta(seconds=5))
    more = changed(later, counts=replace(COUNTS, signals=Figure(5000)))

    first = journal.news(SNAPSHOT, "")

    assert first[0].startswith("12:00:00  1,201 connections")
    assert first[0].endswith("; next in 30 s")
    assert first[1].strip() == "acme support-desk: backoff, RateLimited: slow down"
    assert journal.news(later, "") == []
    assert journal.news(later, "The database does not answer: X")[0].endswith("answer: X")
    assert len(journal.news(more, "")) == 1
    assert len(journal.news(changed(more, now=NOW + timedelta(minutes=3)), "")) == 1


def test_a_trouble_that_comes_back_is_told_again() -> None:
    journal = Journal()
    well = changed(SNAPSHOT, troubles=[])

    journal.news(SNAPSHOT, "")
    journal.news(well, "")

    assert len(journal.news(SNAPSHOT, "")) == 1
