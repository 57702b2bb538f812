"""`syncline audit`: who changed what, by whom the command was run."""

import getpass

from support.commands import CommandLine

NAME = "acme/demo/a-1"


def test_what_commands_change_is_listed_with_their_user(syncline: CommandLine) -> None:
    syncline("connections", "add", "acme", "demo", "a-1")
    syncline("connections", "pause", NAME, "--reason", "they asked")

    listed = syncline("audit", "--connection", NAME, "--since", "1h")
    whole = syncline.json("audit", "--tenant", "acme")
    nobody = syncline.json("audit", "--actor", "nobody else")

    assert "connections.pause" in listed.stdout
    assert {(one["actor_kind"], one["actor"]) for one in whole} == {("command", getpass.getuser())}
    assert [one["action"] for one in whole] == ["connections.pause", "connections.create"]
    assert whole[0]["after"] == {"status": "paused", "why": "they asked"}
    assert nobody == []


def test_a_wrong_time_is_refused_with_an_example(syncline: CommandLine) -> None:
    wrong = syncline("audit", "--since", "yesterday")

    assert wrong.exit_code in (1, 2)
    assert "such as 30min, 24h or 7d" in wrong.output
