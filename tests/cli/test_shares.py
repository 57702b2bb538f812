"""Weights and caps by command."""

import pytest

from support.commands import CommandLine


def test_a_tenant_gets_a_weight_and_caps(syncline: CommandLine) -> None:
    assert syncline("tenants", "set", "acme", "--weight", "3", "--max-running", "20").exit_code == 0
    at_github = ("tenants", "set", "acme", "--provider", "github", "--max-running", "5")
    assert syncline(*at_github).exit_code == 0

    [acme] = syncline.json("tenants", "list")
    shown = syncline("tenants", "list").stdout

    assert (acme["tenant_id"], acme["weight"], acme["over_share"]) == ("acme", 3, False)
    caps = [(cap["provider_slug"], cap["max_running"], cap["running"]) for cap in acme["caps"]]
    assert caps == [(None, 20, 0), ("github", 5, 0)]
    assert "20, 5 at github" in shown


def test_what_was_set_is_removed(syncline: CommandLine) -> None:
    syncline("tenants", "set", "acme", "--weight", "3", "--max-running", "20")
    syncline("tenants", "set", "acme", "--weight", "1", "--uncapped")

    assert syncline.json("tenants", "list") == []


def test_a_provider_gets_a_cap(syncline: CommandLine) -> None:
    assert syncline("providers", "set", "github", "--max-running", "50").exit_code == 0

    assert syncline.json("providers", "show", "github")["caps"] == [
        {"tenant_id": None, "provider_slug": "github", "max_running": 50, "running": 0}
    ]
    assert "50 (0 running)" in syncline("providers", "show", "github").stdout


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("tenants", "set", "acme"), "--weight"),
        (("tenants", "set", "acme", "--provider", "github", "--weight", "2"), "--provider"),
        (("tenants", "set", "acme", "--max-running", "1", "--uncapped"), "exclude each other"),
        (("tenants", "set", "acme", "--weight", "0"), "weight"),
        (("providers", "set", "github"), "--max-running"),
        (("providers", "set", "github", "--max-running", "-1"), "max-running"),
    ],
)
def test_wrong_use_is_named(syncline: CommandLine, arguments: tuple[str, ...], reason: str) -> None:
    result = syncline(*arguments)

    assert result.exit_code in (1, 2)
    assert reason in result.stderr


def test_a_tenant_that_is_deleted_has_neither(syncline: CommandLine) -> None:
    syncline.add("support-desk")
    syncline("tenants", "set", "acme", "--weight", "3", "--max-running", "20")
    syncline("tenants", "delete", "acme", "--yes")

    assert syncline.json("tenants", "list") == []


def test_a_tenant_is_paused_and_resumed(syncline: CommandLine) -> None:
    assert "is paused" in syncline("tenants", "pause", "acme", "--because", "unpaid").stderr
    [acme] = syncline.json("tenants", "list")
    assert (acme["paused_because"], acme["paused_at"] is not None) == ("unpaid", True)

    assert "is resumed" in syncline("tenants", "resume", "acme").stderr
    assert "was not paused" in syncline("tenants", "resume", "acme").stderr
    assert syncline.json("tenants", "list") == []
