"""Commands for many things at once: a count, a question, and nothing lost on the way."""

import json
import stat
from pathlib import Path
from typing import Any

from support.commands import CommandLine


def end_jobs(syncline: CommandLine, status: str, **where: str) -> None:
    """Write down an ended job for each connection."""
    syncline.sql(
        "INSERT INTO syncline.sync_jobs (tenant_id, provider_slug, connection_id, status,"
        " finished_at) SELECT tenant_id, provider_slug, id, $1, now() FROM syncline.connections",
        status,
    )


def count(syncline: CommandLine, table: str, condition: str = "true") -> int:
    [row] = syncline.sql(f"SELECT count(*) FROM syncline.{table} WHERE {condition}")
    found: int = row["count"]
    return found


def test_failed_jobs_are_retried_by_filter(syncline: CommandLine) -> None:
    syncline.add("a-1", tenant="acme")
    syncline.add("a-2", tenant="acme")
    syncline.add("b-1", tenant="globex")
    end_jobs(syncline, "failed")

    result = syncline("jobs", "retry", "--tenant", "acme", "--yes")

    assert (result.exit_code, result.stdout) == (0, "Retried 2 jobs.\n")
    assert count(syncline, "sync_jobs", "status = 'queued' AND tenant_id = 'acme'") == 2
    assert count(syncline, "sync_jobs", "status = 'queued' AND tenant_id = 'globex'") == 0


def test_failure_that_was_made_good_since_is_not_retried(syncline: CommandLine) -> None:
    syncline.add()
    end_jobs(syncline, "failed")
    end_jobs(syncline, "succeeded")

    assert syncline("jobs", "retry", "--all", "--yes").stdout == "Retried 0 jobs.\n"


def test_of_many_failures_only_the_last_is_retried(syncline: CommandLine) -> None:
    syncline.add()
    end_jobs(syncline, "failed")
    end_jobs(syncline, "failed")

    assert syncline("jobs", "retry", "--all", "--yes").stdout == "Retried 1 job.\n"


def test_jobs_in_backoff_are_made_due(syncline: CommandLine) -> None:
    connection = syncline.add()
    job = syncline.json("connections", "sync", connection)["id"]
    syncline.sql(
        "UPDATE syncline.sync_jobs SET attempts = 3, retry_after = now() + interval '1 hour'"
    )

    assert syncline("jobs", "retry", "--status", "backoff", "--all", "--yes").exit_code == 0
    assert syncline.json("jobs", "show", job)["retry_after"] is None


def test_pending_jobs_are_cancelled_by_filter(syncline: CommandLine) -> None:
    for tenant in ("acme", "globex"):
        syncline.json("connections", "sync", syncline.add(tenant=tenant))

    report = syncline.json("jobs", "cancel", "--provider", "demo", "--tenant", "acme", "--yes")

    assert report == {"done": 1, "refused": {}}
    assert count(syncline, "sync_jobs", "status = 'cancelled' AND tenant_id = 'acme'") == 1


def test_what_cannot_be_retried_is_counted_by_reason(syncline: CommandLine) -> None:
    for external_id in ("a-1", "a-2"):
        syncline.json("connections", "pause", syncline.add(external_id))
    end_jobs(syncline, "failed")

    result = syncline("jobs", "retry", "--all", "--yes")

    assert result.exit_code == 1
    assert "2 jobs could not be changed: 2 x connection is paused, not active" in result.stderr


def test_wrong_use_changes_nothing(syncline: CommandLine) -> None:
    job = syncline.json("connections", "sync", syncline.add())["id"]

    for arguments, complaint in (
        (["jobs", "retry"], "give a JOB, a filter"),
        (["jobs", "cancel", "--tenant", "acme", job], "either"),
        (["jobs", "cancel", "--tenant", "acme"], "nobody can confirm; add --yes"),
        (["tenants", "delete", "acme"], "nobody can confirm; add --yes"),
    ):
        result = syncline(*arguments)
        assert (result.exit_code, complaint in result.stderr) == (2, True), result.stderr
    assert count(syncline, "sync_jobs", "status = 'queued'") == 1


def write(folder: Path, name: str, *lines: str) -> str:
    (folder / name).write_text("\n".join(lines), "utf-8")
    return str(folder / name)


def test_connections_are_imported_from_csv(syncline: CommandLine, tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "accounts.csv",
        "tenant,provider,external_id,config,interval",
        'acme,git,a-1,"{""url"": ""x""}",300',
        "acme,demo,a-2,,",
    )

    result = syncline("connections", "import", path)

    assert (result.exit_code, result.stdout) == (
        0,
        "Added 2 connections; 0 existed already.\n",
    )
    first, second = syncline.json("connections", "list")
    assert (first["config"], first["metadata"]["sync"]["interval_seconds"]) == ({"url": "x"}, 300)
    assert (second["external_id"], second["config"]) == ("a-2", {})
    assert not (tmp_path / "accounts.csv.rejected").exists()


def test_import_goes_on_where_it_was_cut_short(syncline: CommandLine, tmp_path: Path) -> None:
    lines = [json.dumps({"tenant": "acme", "provider": "demo", "external_id": n}) for n in "abc"]
    syncline("connections", "import", write(tmp_path, "first.ndjson", lines[0]))

    report = syncline.json("connections", "import", write(tmp_path, "all.ndjson", *lines, ""))

    assert (report["added"], report["existing"], report["rejected"]) == (2, 1, 0)


def test_bad_lines_are_written_down_with_the_reason(syncline: CommandLine, tmp_path: Path) -> None:
    good = {"tenant_id": "acme", "provider_slug": "demo", "external_id": "a"}
    bad: dict[str, Any] = {
        "the line is not JSON": "{",
        "the line is list; it must be an object": "[]",
        "tenant_id is ''": json.dumps({**good, "tenant_id": ""}),
        "'color' is unknown": json.dumps({**good, "color": 1}),
        "interval_seconds is 5; it must be": json.dumps({**good, "interval_seconds": 5}),
        "config is int; it must be an object": json.dumps({**good, "config": 1}),
        "external_id holds a lone surrogate": json.dumps({**good, "external_id": "\ud800"}),
    }
    path = write(tmp_path, "x.ndjson", *bad.values(), json.dumps(good))

    result = syncline("connections", "import", path)

    assert result.exit_code == 1
    assert f"7 lines were rejected; see {path}.rejected" in result.stderr
    assert result.stdout == "Added 1 connections; 0 existed already.\n"
    rejected = Path(f"{path}.rejected")
    assert stat.S_IMODE(rejected.stat().st_mode) == 0o600
    told = [json.loads(line) for line in rejected.read_text().splitlines()]
    assert [(entry["line"], entry["text"]) for entry in told] == list(enumerate(bad.values(), 1))
    for entry, reason in zip(told, bad, strict=True):
        assert entry["problem"].startswith(reason)


def test_bad_lines_of_csv_harm_no_other(syncline: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(
        b"tenant_id,provider_slug,external_id,config,interval_seconds\n"
        b"acme,git\n"
        b"acme,git,\xff,,\n"
        b"acme,git,a,{,\n"
        b"acme,git,b,,soon\n"
        b"acme,demo,good,,60\n"
    )

    result = syncline("connections", "import", str(path))

    assert (result.exit_code, "4 lines were rejected" in result.stderr) == (1, True)
    assert [found["external_id"] for found in syncline.json("connections", "list")] == ["good"]


def test_file_that_cannot_be_used_is_refused(syncline: CommandLine, tmp_path: Path) -> None:
    for header in ("tenant,external_id", "tenant,provider,external_id,secret"):
        result = syncline("connections", "import", write(tmp_path, "x.csv", header))
        assert result.exit_code == 2
        assert "the first line must name the columns" in result.stderr

    missing = syncline("connections", "import", str(tmp_path / "gone.csv"))
    assert (missing.exit_code, "gone.csv: No such file" in missing.stderr) == (1, True)


def fill(syncline: CommandLine, tenant: str) -> None:
    """Give a tenant two connections, a job and a signal of each, and a signal left behind."""
    for external_id in ("a-1", "a-2"):
        syncline.json("connections", "sync", syncline.add(external_id, tenant=tenant))
    syncline.sql(
        "INSERT INTO syncline.signals (tenant_id, provider_slug, connection_id, kind, payload)"
        " SELECT tenant_id, provider_slug, id, 'seen', '{\"n\": 1.50}'::jsonb"
        " FROM syncline.connections"
        " WHERE tenant_id = $1 UNION ALL SELECT $1, 'demo', gen_random_uuid(), 'left', '{}'::jsonb",
        tenant,
    )


def test_tenant_is_exported_whole_and_alone(syncline: CommandLine, tmp_path: Path) -> None:
    fill(syncline, "acme")
    fill(syncline, "globex")
    path = tmp_path / "acme.ndjson"

    result = syncline("tenants", "export", "acme", "--output", str(path))

    assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["table"] for line in lines].count("connections") == 2
    assert [line["table"] for line in lines].count("sync_jobs") == 2
    assert [line["table"] for line in lines].count("signals") == 3
    assert {line["row"]["tenant_id"] for line in lines} == {"acme"}
    assert '"payload":{"n": 1.50}' in path.read_text()
    assert "2 connections, 2 jobs and 3 signals" in result.stderr


def test_tenant_is_deleted_whole_and_alone(syncline: CommandLine) -> None:
    fill(syncline, "acme")
    fill(syncline, "globex")
    end_jobs(syncline, "failed")

    syncline("keys", "create", "acme's", "--tenant", "acme")

    result = syncline("tenants", "delete", "acme", "--yes")

    assert result.stdout == (
        "Deleted tenant acme with 2 connections, 4 jobs and 3 signals; revoked 1 key.\n"
    )
    for table, left in (("connections", 2), ("sync_jobs", 4), ("signals", 3)):
        assert count(syncline, table) == count(syncline, table, "tenant_id = 'globex'") == left
    assert syncline("tenants", "delete", "acme", "--yes").exit_code == 1
