"""Credentials on the command line: in through stdin, out nowhere."""

import json
from typing import Any
from uuid import uuid4

import pytest
from typer.testing import CliRunner, Result

from support.commands import CommandLine
from syncline.cli.app import app
from syncline.keyring import KeyRing, new_key

SECRET = '{"token": "canary-token"}'


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    key = new_key("k1")
    monkeypatch.setenv("SYNCLINE_SECRET_KEYS", key)
    return key


def give(syncline: CommandLine, *arguments: str, stdin: str = SECRET) -> Result:
    return CliRunner().invoke(app, ["--database-url", syncline.url, *arguments], input=stdin)


def add(syncline: CommandLine, external_id: str = "a-1", **options: Any) -> Result:
    command = ("connections", "add", "acme", "demo", external_id, "--credentials-stdin", "--json")
    return give(syncline, *command, **options)


def stored(syncline: CommandLine) -> list[str]:
    return [row["key_id"] for row in syncline.sql("SELECT key_id FROM syncline.credentials")]


def test_a_connection_is_added_with_credentials(syncline: CommandLine) -> None:
    added = add(syncline)

    assert added.exit_code == 0, added.output
    assert "canary" not in added.output
    assert stored(syncline) == ["k1"]


def test_what_is_no_object_is_refused_without_being_quoted(syncline: CommandLine) -> None:
    for stdin in ("", "canary", "[]", '"canary"', '{"canary"', "{}", "NaN"):
        refused = add(syncline, stdin=stdin)

        assert refused.exit_code in (1, 2), stdin
        assert "credentials" in refused.output
        assert "canary" not in refused.output
    assert stored(syncline) == []


def test_without_a_key_they_are_refused(
    syncline: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SYNCLINE_SECRET_KEYS")

    refused = add(syncline)

    assert refused.exit_code == 1
    assert "set SYNCLINE_SECRET_KEYS (`syncline secrets key` makes a key)" in refused.output


def test_new_credentials_resume_a_connection(syncline: CommandLine) -> None:
    id_ = syncline.add()
    syncline.sql("UPDATE syncline.connections SET status = 'needs_reauth'")

    changed = give(syncline, "connections", "set-credentials", id_, "--credentials-stdin", "--json")

    assert json.loads(changed.stdout)["status"] == "active"
    assert stored(syncline) == ["k1"]
    assert give(syncline, "connections", "set-credentials", id_, "--clear").exit_code == 0
    assert stored(syncline) == []


def test_set_credentials_needs_exactly_one_of_its_options(syncline: CommandLine) -> None:
    for options in ((), ("--credentials-stdin", "--clear")):
        result = give(syncline, "connections", "set-credentials", str(uuid4()), *options)

        assert result.exit_code == 2, options
        assert "either --credentials-stdin or --clear" in result.output


def test_a_key_is_made(syncline: CommandLine) -> None:
    one, other = syncline("secrets", "key", "mine").stdout, syncline("secrets", "key").stdout

    assert KeyRing(one.strip()).first == "mine"
    assert KeyRing(other.strip()).first == "k1"
    assert one.partition(":")[2] != other.partition(":")[2]
    assert syncline("secrets", "key", "a b").exit_code == 1


def test_everything_is_put_under_a_new_key(
    syncline: CommandLine, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    for number in range(3):
        add(syncline, str(number))
    monkeypatch.setenv("SYNCLINE_SECRET_KEYS", f"{new_key('k2')},{key}")

    rotated = syncline("secrets", "rotate")

    assert rotated.exit_code == 0
    assert "3 done, 0 left" in rotated.stderr
    assert stored(syncline) == ["k2"] * 3
    assert syncline.json("secrets", "rotate") == {"rotated": 0, "unreadable": []}


def test_credentials_that_no_key_opens_are_reported(
    syncline: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_ = json.loads(add(syncline).stdout)["id"]
    monkeypatch.setenv("SYNCLINE_SECRET_KEYS", new_key("k2"))

    rotated = syncline("secrets", "rotate")

    assert rotated.exit_code == 1
    assert f"the first belongs to connection {id_}" in rotated.output
