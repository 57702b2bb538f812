"""`syncline connections act`: change all connections that a filter matches."""

import pytest

from support.commands import CommandLine


def test_all_that_match_are_paused_and_resumed(syncline: CommandLine) -> None:
    for name in ("a", "b", "c"):
        syncline.add(name)

    counted = syncline.json("connections", "act", "pause", "--tenant", "acme", "--dry-run")
    paused = syncline.json("connections", "act", "pause", "--tenant", "acme", "--yes")
    again = syncline("connections", "act", "pause", "--all", "--yes").stdout

    assert (counted["matched"], counted["done"]) == (3, 0)
    assert (paused["matched"], paused["done"], paused["state"]) == (3, 3, "done")
    assert "3 match; 0 done, 3 left alone." in again
    assert "3: is paused already" in again
    resumed = syncline.json("connections", "act", "resume", "--status", "paused", "--yes")
    assert resumed["done"] == 3


@pytest.mark.parametrize(
    "arguments", [("pause",), ("delete", "--all"), ("pause", "--all", "--tenant", "acme")]
)
def test_wrong_use_changes_nothing(syncline: CommandLine, arguments: tuple[str, ...]) -> None:
    syncline.add("a")

    assert syncline("connections", "act", *arguments, "--yes").exit_code == 2


def test_without_a_terminal_it_asks_for_yes(syncline: CommandLine) -> None:
    syncline.add("a")

    assert syncline("connections", "act", "pause", "--all").exit_code == 2
