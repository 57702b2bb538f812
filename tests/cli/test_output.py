"""Tables for people, JSON for machines."""

import io
import json
from typing import Any

import pytest

from support.commands import CommandLine
from support.world import at
from syncline.cli.output import cell, print_fields, print_json, print_table


def test_json_has_times_in_utc(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"at": at("12:00:05")})

    assert json.loads(capsys.readouterr().out) == {"at": "2025-01-01T12:00:05Z"}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (at("12:00:05"), "2025-01-01 12:00:05Z"),
        ({"a": [1]}, '{"a": [1]}'),
        ("[red]not markup[/red]", "[red]not markup[/red]"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ({"api_key": "hunter2"}, '{"api_key": ***}'),
    ],
)
def test_cells(value: Any, text: str) -> None:
    assert cell(value).plain == text


def test_long_cells_are_cut() -> None:
    assert cell("x" * 1000).plain == "x" * 99 + "…"


def test_what_goes_into_a_pipe_is_never_wrapped(capsys: pytest.CaptureFixture[str]) -> None:
    row = ["x" * 90] * 6

    print_table("abcdef", [row])

    assert capsys.readouterr().out.splitlines()[-1].split() == row


def test_names_of_fields_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    print_fields({"[bold]key[/bold]": "value"})

    assert capsys.readouterr().out.split() == ["[bold]key[/bold]", "value"]


def test_metadata_written_by_hand_can_be_shown(syncline: CommandLine) -> None:
    id_ = syncline.add()
    syncline.sql("UPDATE syncline.connections SET metadata = '[1]', config = NULL")

    assert syncline("connections", "show", id_).exit_code == 0
    assert syncline("connections", "list").exit_code == 0


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_narrow_terminal_gets_fewer_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", terminal := Terminal())
    monkeypatch.setenv("TERM", "dumb")  # which has 80 columns

    row = ["i" * 36, "f" * 20, "s" * 20, "words " * 12]
    print_table(["ID", "First", "Second", "Words"], [row], dispensable=["First", "Second"])

    lines = terminal.getvalue().splitlines()
    assert lines[0].split() == ["ID", "Words"]
    assert lines[2].startswith("i" * 36 + "   words words words")
    assert max(map(len, lines)) <= 80
    assert terminal.getvalue().count("words") == 12  # folded, not cut
