"""Commands that are given a connection by its name, and names beside ids."""

import pytest

from support.commands import CommandLine

NAME = "acme/demo/octo/hello"


@pytest.mark.parametrize(
    "arguments",
    [
        ("connections", "show", NAME),
        ("connections", "pause", NAME),
        ("connections", "resume", NAME),
        ("connections", "set-interval", NAME, "300"),
        ("connections", "set-config", NAME, "{}"),
        ("connections", "set-cursor", NAME, "--clear"),
        ("connections", "set-credentials", NAME, "--clear"),
        ("connections", "sync", NAME),
        ("explain", NAME),
        ("jobs", "list", "--connection", NAME),
        ("jobs", "retry", "--connection", NAME, "--yes"),
        ("jobs", "cancel", "--connection", NAME, "--yes"),
        ("signals", "list", "--connection", NAME),
        ("signals", "export", "--connection", NAME),
        ("connections", "delete", NAME, "--yes"),
    ],
    ids=" ".join,
)
def test_a_name_serves_as_an_id(syncline: CommandLine, arguments: tuple[str, ...]) -> None:
    syncline.add("octo/hello")
    syncline.add("octo")

    result = syncline(*arguments)

    assert result.exit_code == 0, result.output
    wrong = [argument.replace("octo", "okto") for argument in arguments]
    assert "there is no connection acme/demo/okto/hello" in syncline(*wrong).output


def test_a_name_acts_on_its_connection_only(syncline: CommandLine) -> None:
    named = syncline.add("octo/hello", tenant="a/b")
    syncline.add("b/octo/hello", tenant="a")

    syncline("connections", "pause", "a%2Fb/demo/octo/hello")

    listed = syncline.json("connections", "list", "--status", "paused")
    assert [one["id"] for one in listed] == [named]


def test_what_is_neither_an_id_nor_a_name_is_wrong_use(syncline: CommandLine) -> None:
    result = syncline("connections", "show", "acme/demo")

    assert result.exit_code == 2
    assert "neither a UUID nor TENANT/PROVIDER/EXTERNAL_ID" in " ".join(result.output.split())


def test_jobs_and_explanations_name_their_connection(syncline: CommandLine) -> None:
    id_ = syncline.add("octo/hello")
    job = syncline.json("connections", "sync", NAME)["id"]

    assert syncline.json("jobs", "list")[0]["connection"] == NAME
    assert NAME in syncline("jobs", "list").output
    assert syncline.json("jobs", "show", job)["connection"] == NAME
    assert f"{NAME} ({id_})" in syncline("jobs", "show", job).output
    assert syncline.json("explain", id_)["connection"] == NAME
    assert f"{NAME} ({id_})" in syncline("explain", id_).output


def test_signals_name_their_connection(syncline: CommandLine) -> None:
    id_ = syncline.add("octo/hello")
    syncline.sql(
        "INSERT INTO syncline.signals (tenant_id, provider_slug, connection_id, kind, payload)"
        " VALUES ('acme', 'demo', $1, 'opened', '{}')",
        id_,
    )

    assert syncline.json("signals", "list")[0]["connection"] == NAME
    assert NAME in syncline("signals", "list").output
