"""The tasks of an operator, by command; those of `tests/browser/test_operator_tasks.py`."""

from typing import Any

import pytest

from support.commands import CommandLine
from support.operator_tasks import FAILED_JOB, FRUITFUL_JOB, STATEMENTS, WORKER
from syncline.keyring import new_key

ODD = "acme/github/acme%2Fodd"
REVOKED = "acme/github/acme%2Frevoked"


@pytest.fixture
def cell(syncline: CommandLine) -> CommandLine:
    for statement in (WORKER, *STATEMENTS):
        syncline.sql(statement.replace("{schema}", "syncline"))
    return syncline


def run(cell: CommandLine, *arguments: str) -> str:
    result = cell(*arguments)
    assert result.exit_code == 0, result.output
    return " ".join(result.stdout.split())


def named(cell: CommandLine, external_id: str) -> Any:
    [row] = cell.sql("SELECT * FROM syncline.connections WHERE external_id = $1", external_id)
    return row


def test_why_does_it_not_sync(cell: CommandLine) -> None:
    assert "the grant was revoked" in run(cell, "explain", REVOKED)


def test_which_provider_fails_since_when_and_whom(cell: CommandLine) -> None:
    assert "mailbox: does not answer since" in run(cell, "status")
    [found] = [one for one in cell.json("status")["providers"] if one["provider_slug"] == "mailbox"]
    assert found["troubled_since"]
    assert (found["affected"]["connections"], found["affected"]["tenants"]) == (1, 1)


def test_pause_a_tenant(cell: CommandLine) -> None:
    run(cell, "tenants", "pause", "acme")
    assert cell.sql("SELECT * FROM syncline.tenant_pauses")
    assert "paused" in run(cell, "explain", ODD)


def test_what_a_run_brought(cell: CommandLine) -> None:
    found = cell.json("signals", "list", "--job", FRUITFUL_JOB)
    assert [one["kind"] for one in found] == 2 * ["release_published"]


def test_the_slowest(cell: CommandLine) -> None:
    [found, *_] = cell.json("jobs", "list", "--order", "slowest", "--since", "24h")
    assert found["id"] == FRUITFUL_JOB
    [failed] = cell.json("jobs", "list", "--error", "Permanent")
    assert failed["id"] == FAILED_JOB


def test_retry_all_failures_of_a_provider(cell: CommandLine) -> None:
    # A run that succeeded since leaves nothing to retry.
    cell.sql("DELETE FROM syncline.sync_jobs WHERE id = $1", FRUITFUL_JOB)
    run(cell, "jobs", "retry", "--provider", "github", "--status", "failed", "--yes")
    [job] = cell.sql(
        "SELECT * FROM syncline.sync_jobs WHERE provider_slug = 'github' AND status = 'queued'"
    )
    assert job["connection_id"] == named(cell, "acme/odd")["id"]


def test_who_changed_it(cell: CommandLine) -> None:
    run(cell, "connections", "pause", ODD, "--reason", "quota")
    [found] = cell.json("audit", "--connection", ODD)
    assert found["action"] == "connections.pause"
    assert found["actor"]


def test_add_and_change_an_interval(cell: CommandLine) -> None:
    run(cell, "connections", "add", "acme", "demo", "bakery")
    run(cell, "connections", "set-interval", "acme/demo/bakery", "300")
    assert named(cell, "bakery")["interval_stored"] == "300"


def test_reconnect(cell: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYNCLINE_SECRET_KEYS", new_key("k1"))
    result = cell(
        "connections", "set-credentials", REVOKED, "--credentials-stdin", stdin='{"token": "new"}'
    )
    assert result.exit_code == 0, result.output
    assert named(cell, "acme/revoked")["status"] == "active"


def test_how_much_of_a_quota_is_used(cell: CommandLine) -> None:
    [found] = [one for one in cell.json("budgets", "list") if one["scope"] == "github"]
    assert (found["calls"], "used" in found) == (5000, True)


def test_the_load_of_workers(cell: CommandLine) -> None:
    [worker] = cell.json("workers")
    assert (worker["host"], worker["busy"], worker["slots"]) == ("sync-1.eu", 9, 64)


def test_the_log_and_the_calls_of_a_run(cell: CommandLine) -> None:
    shown = run(cell, "jobs", "show", FAILED_JOB)
    for text in ("the repository is gone", "in github.py, line 7", "api.example.com/repos", "410"):
        assert text in shown


def test_the_backlog_of_a_day(cell: CommandLine) -> None:
    assert "4321" in run(cell, "history", "--period", "24h")
    found = cell.json("history", "--period", "24h", "--provider", "github")
    assert len(found["points"]) == 24
    assert {one["backlog"] for one in found["points"]} == {0, 4321}
    assert cell("history", "--period", "2h").exit_code != 0
