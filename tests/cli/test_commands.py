"""What the commands do, on a real database."""

import json
from datetime import datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from support.commands import CommandLine

TYPES = ("incremental", "full")


def test_a_connection_is_added_shown_and_listed(syncline: CommandLine) -> None:
    added = syncline.json(
        *("connections", "add", "acme", "demo", "desk-1"),
        *("--config", '{"personality": "quiet"}', "--interval", "300"),
    )

    assert added["tenant_id"] == "acme"
    assert added["config"] == {"personality": "quiet"}
    assert added["metadata"]["sync"]["interval_seconds"] == 300
    assert "credentials" not in added
    assert datetime.fromisoformat(added["created_at"]).utcoffset() == timedelta()
    assert added["created_at"].endswith("Z")
    assert syncline.json("connections", "show", added["id"])["id"] == added["id"]
    assert [one["id"] for one in syncline.json("connections", "list")] == [added["id"]]
    assert "desk-1" in syncline("connections", "list").stdout
    assert "sync.interval_seconds" in syncline("connections", "show", added["id"]).stdout


def test_a_taken_key_fails_and_names_the_connection(syncline: CommandLine) -> None:
    existing = syncline.add("a-1")

    result = syncline("connections", "add", "acme", "demo", "a-1")

    assert result.exit_code == 1
    assert result.stderr.startswith(f"syncline: connection {existing} already has the key")


def test_a_provider_without_connector_is_pointed_out(syncline: CommandLine) -> None:
    result = syncline("connections", "add", "acme", "fax", "a-1", "--force")

    assert result.exit_code == 0
    assert "syncline: no connector for fax is installed here" in result.stderr


def test_listings_are_filtered(syncline: CommandLine) -> None:
    ours = syncline.add("a-1")
    syncline.add("b-1", tenant="birch")
    other = syncline.add("a-2", provider="git")
    syncline("connections", "pause", other)

    def ids(*filters: str) -> list[str]:
        return [one["id"] for one in syncline.json("connections", "list", *filters)]

    assert ids("--tenant", "acme") == [ours, other]
    assert ids("--tenant", "acme", "--provider", "demo") == [ours]
    assert ids("--status", "paused") == [other]


def test_pages_go_on_where_the_last_one_ended(syncline: CommandLine) -> None:
    first, second, third = (syncline.add(name) for name in ("a", "b", "c"))

    page = syncline("connections", "list", "--limit", "2")
    sentence, token = page.stderr.rsplit(maxsplit=1)
    rest = syncline("connections", "list", "--limit", "2", "--after", token, "--json")

    assert first in page.stdout
    assert second in page.stdout
    assert sentence == "There is more: --after"
    assert [one["id"] for one in json.loads(rest.stdout)] == [third]
    assert rest.stderr == ""


def test_a_page_in_json_says_on_stderr_how_to_continue(syncline: CommandLine) -> None:
    connection = syncline.add("a")
    jobs = [syncline.json("connections", "sync", connection, "--type", type_) for type_ in TYPES]
    newest = syncline("jobs", "list", "--limit", "1", "--json")

    for option in ("--after", "--before"):
        rest = syncline.json("jobs", "list", option, newest.stderr.split()[-1])
        assert [one["id"] for one in [*json.loads(newest.stdout), *rest]] == [
            job["id"] for job in reversed(jobs)
        ]


def test_what_is_not_a_token_is_refused_by_its_option(syncline: CommandLine) -> None:
    refused = syncline("connections", "list", "--after", "nonsense")

    assert refused.exit_code == 1
    assert refused.stderr == "syncline: after is not a token that a listing returned\n"


def test_pause_and_resume(syncline: CommandLine) -> None:
    id_ = syncline.add()

    paused = syncline.json("connections", "pause", id_, "--reason", "moving house")
    shown = syncline("connections", "list").stdout
    resumed = syncline.json("connections", "resume", id_)

    assert paused["status"] == "paused"
    assert paused["status_reason"]["why"] == "moving house"
    assert "moving house" in shown
    assert resumed["status"] == "active"


def test_set_interval_and_cursor(syncline: CommandLine) -> None:
    id_ = syncline.add()

    def sync(*arguments: str) -> dict[str, object]:
        changed: dict[str, object] = syncline.json("connections", *arguments)["metadata"]["sync"]
        return changed

    assert sync("set-interval", id_, "120")["interval_seconds"] == 120
    assert "interval_seconds" not in sync("set-interval", id_, "--default")
    assert sync("set-cursor", id_, '{"since": 5}')["cursor"] == {"since": 5}
    assert "cursor" not in sync("set-cursor", id_, "--clear")
    too_long = syncline("connections", "set-interval", id_, "100000")
    assert too_long.exit_code == 1
    assert "from 60 to 86400" in too_long.stderr


def test_sync_now_queues_a_job_which_can_be_cancelled_and_retried(syncline: CommandLine) -> None:
    id_ = syncline.add()

    queued = syncline.json("connections", "sync", id_, "--type", "full", "--priority", "7")
    cancelled = syncline.json("jobs", "cancel", queued["id"])
    retried = syncline.json("jobs", "retry", queued["id"])

    assert (queued["status"], queued["job_type"], queued["priority"]) == ("queued", "full", 7)
    assert cancelled["status"] == "cancelled"
    assert retried["status"] == "queued"
    assert [job["id"] for job in syncline.json("jobs", "list")] == [retried["id"], queued["id"]]
    assert syncline.json("jobs", "list", "--status", "failed") == []
    assert len(syncline.json("jobs", "list", "--connection", id_, "--type", "full")) == 2
    assert queued["id"] in syncline("jobs", "list").stdout
    assert "cancelled" in syncline("jobs", "show", queued["id"]).stdout
    assert (
        f"Job {retried['id']} is queued"
        in syncline("connections", "sync", id_, "--type", "full").stdout
    )


def test_a_job_is_shown_with_its_failed_attempts(syncline: CommandLine) -> None:
    job = syncline.json("connections", "sync", syncline.add())["id"]
    assert syncline.json("jobs", "show", job)["failed_attempts"] == []
    syncline.sql(
        "INSERT INTO syncline.job_attempts"
        " SELECT id, now(), gen_random_uuid(), tenant_id, connection_id, 'host:7', 1234,"
        ' \'{"class": "Transient", "message": "down"}\', E\'tickets.py:7 in sync\\n    boom()\','
        ' \'[{"method": "GET", "url": "https://a.example/x", "status": 503,'
        ' "milliseconds": 12}]\', 30, 2 FROM syncline.sync_jobs WHERE id = $1',
        job,
    )

    shown = syncline("jobs", "show", job).stdout

    [attempt] = syncline.json("jobs", "show", job)["failed_attempts"]
    assert (attempt["worker"], attempt["calls"][0]["status"]) == ("host:7", 503)
    assert "Transient: down" in shown
    assert "1,234 ms" in shown
    assert "https://a.example/x" in shown
    assert "29 calls before the last 5 are left out" in shown
    assert "tickets.py:7 in sync\n    boom()" in shown


def test_signals_are_listed(syncline: CommandLine) -> None:
    syncline.sql(
        "INSERT INTO syncline.signals (tenant_id, provider_slug, connection_id, kind, payload)"
        " VALUES ('acme', 'demo', $1, 'ticket_created', '{\"n\": 1}'),"
        "        ('birch', 'demo', $1, 'ticket_closed', '{}')",
        uuid4(),
    )

    (only,) = syncline.json("signals", "list", "--kind", "ticket_created", "--tenant", "acme")

    assert only["payload"] == {"n": 1}
    assert only["occurred_at"].endswith("Z")
    assert "ticket_closed" in syncline("signals", "list").stdout


def test_delete(syncline: CommandLine) -> None:
    for options in (["--yes"], ["-y", "--keep-signals"]):
        id_ = syncline.add()

        result = syncline("connections", "delete", id_, *options)

        assert (result.exit_code, result.stdout) == (0, f"Deleted connection {id_}.\n")
        gone = syncline("connections", "show", id_)
        assert (gone.exit_code, gone.stderr) == (1, f"syncline: there is no connection {id_}\n")


def test_what_cannot_be_done_fails(syncline: CommandLine) -> None:
    id_ = syncline.add()
    syncline("connections", "pause", id_)

    result = syncline("connections", "sync", id_)

    assert result.exit_code == 1
    assert result.stderr == f"syncline: connection {id_} is paused, not active\n"


def test_a_config_and_a_cursor_may_stand_in_a_file(syncline: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "value.json").write_text('{"url": "https://a.example"}')
    file = f"@{tmp_path / 'value.json'}"
    added = syncline.json("connections", "add", "acme", "demo", "a-1", "--config", file)
    changed = syncline.json("connections", "set-cursor", added["id"], file)
    refused = syncline("connections", "add", "acme", "demo", "a-2", "--config", "@none.json")

    assert added["config"] == {"url": "https://a.example"}
    assert changed["metadata"]["sync"]["cursor"] == {"url": "https://a.example"}
    assert refused.exit_code == 2
    assert "cannot read none.json" in refused.stderr


def test_migrate_says_what_it_did(syncline: CommandLine) -> None:
    result = syncline("migrate", "--schema", "another")
    again = syncline("migrate", "--schema", "another")

    assert result.exit_code == again.exit_code == 0
    assert "Applied 0001_initial.\n" in result.stdout
    assert again.stdout == "The schema is up to date.\n"
    syncline.sql("DROP SCHEMA another CASCADE")


def test_migrate_does_not_call_a_newer_schema_up_to_date(syncline: CommandLine) -> None:
    syncline.sql("INSERT INTO syncline.schema_migrations VALUES (9000, 'tomorrow', 'x', 0)")
    try:
        newer = syncline("migrate")
        syncline.sql("UPDATE syncline.schema_migrations SET requires = 9000 WHERE version = 9000")
        breaking = syncline("migrate")
    finally:
        syncline.sql("DELETE FROM syncline.schema_migrations WHERE version = 9000")

    assert newer.exit_code == 0
    assert newer.stdout.startswith("The schema is at version 9000. This Syncline knows version")
    assert breaking.exit_code == 1
    assert "install a newer one" in breaking.stderr


def test_verify_passes_on_a_sound_database(syncline: CommandLine) -> None:
    syncline.add()

    result = syncline("verify")

    assert result.exit_code == 0
    assert "single_flight" in result.stdout
    assert all(invariant["ok"] is not False for invariant in syncline.json("verify"))


def test_verify_fails_and_shows_what_breaks_an_invariant(syncline: CommandLine) -> None:
    stray = uuid4()
    id_ = syncline.add()
    syncline.sql(
        "INSERT INTO syncline.signals (id, tenant_id, provider_slug, connection_id, kind)"
        " VALUES ($1, 'birch', 'demo', $2, 'stray')",
        *(stray, id_),
    )

    result = syncline("verify")
    as_json = syncline("verify", "--json")

    assert result.exit_code == as_json.exit_code == 1
    assert "tenants_agree is broken by these rows:" in result.stdout
    assert str(stray) in result.stdout
    assert result.stderr.startswith("syncline: 1 of ")
    assert f'"id": "{stray}"' in as_json.stdout


def test_providers_tells_where_each_connector_is_from(
    syncline: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    (syncline.folder / "own_tickets.py").write_text(
        "from syncline import Connector\n"
        "class Tickets(Connector):\n"
        "    provider = 'tickets'\n"
        "    def sync(self, connection, cursor): ...\n"
    )
    monkeypatch.chdir(syncline.folder)
    monkeypatch.syspath_prepend("")

    found = {entry["provider"]: entry for entry in syncline.json("providers")}
    with_own = syncline.json("providers", "--connectors", "own_tickets")

    assert found["git"]["connector"] == "syncline.connectors.git.connector.GitCommits"
    assert found["git"]["from"].startswith("syncline ")
    assert {
        "provider": "tickets",
        "state": "usual",
        "connector": "own_tickets.Tickets",
        "from": "module own_tickets",
    } in with_own
