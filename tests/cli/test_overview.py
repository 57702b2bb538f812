"""Commands that say how things stand: status, top, doctor, workers, verify."""

import json
import os
import signal
import subprocess
import sys
from datetime import timedelta

import pytest

from support.commands import CommandLine

WORKER = (
    "INSERT INTO syncline.workers VALUES (gen_random_uuid(), 'web-1', 4711, '0.1.0',"
    " '{scheduler,executor}', $1, 50, 3, false, now() - interval '1 hour', now() - $2::interval)"
)
TICK = "INSERT INTO syncline.schedulers VALUES (gen_random_uuid(), now() - interval '1 h', now())"


def add_worker(syncline: CommandLine, *providers: str, silent_seconds: int = 0) -> None:
    syncline.sql(WORKER, list(providers), timedelta(seconds=silent_seconds))


def test_status_shows_everything_on_one_screen(syncline: CommandLine) -> None:
    add_worker(syncline, "demo")
    syncline.json("connections", "sync", syncline.add("support-desk"))

    result = syncline("status")

    assert result.exit_code == 0
    assert "1 connections: 1 active; jobs: 1 queued; 0 signals" in result.stdout
    assert "Due and waiting: 1, the oldest for" in result.stdout
    assert "web-1:4711" in result.stdout
    assert "acme support-desk" in result.stdout


def test_status_without_a_worker_says_so(syncline: CommandLine) -> None:
    assert "No worker is registered" in syncline("status").stdout


def test_status_as_json(syncline: CommandLine) -> None:
    add_worker(syncline, "demo")
    syncline.json("connections", "sync", syncline.add())

    status = syncline.json("status")

    assert status["summary"]["connections"] == {"active": 1}
    assert status["queue"]["depth_by_provider"] == {"demo": 1}
    assert [worker["host"] for worker in status["workers"]] == ["web-1"]


def test_top_shows_what_happens_now(syncline: CommandLine) -> None:
    add_worker(syncline, "demo")
    syncline.json("connections", "sync", syncline.add("slow-one"))
    syncline.sql(
        "UPDATE syncline.sync_jobs SET status = 'running', started_at = now() - interval '90 s',"
        " lease_token = gen_random_uuid(), lease_expires_at = now()"
    )
    syncline.json("connections", "sync", syncline.add("bad-one"))
    syncline.sql(
        "UPDATE syncline.sync_jobs SET attempts = 7, retry_after = now() + interval '1 h',"
        """ error = '{"class": "Transient", "message": "503"}' WHERE status = 'queued'"""
    )

    result = syncline("top", "--count", "2", "--every", "0.2")

    assert result.exit_code == 0, result.output
    for shown in ("jobs/s", "3/50", "acme slow-one", "acme bad-one", "7 x", "Transient: 503"):
        assert shown in result.stdout, shown


def test_doctor_finds_what_is_missing_and_says_what_to_do(syncline: CommandLine) -> None:
    syncline.add()

    result = syncline("doctor", "--json")

    verdicts = {one["name"]: one for one in json.loads(result.stdout)}
    assert result.exit_code == 1
    assert verdicts["workers"]["verdict"] == "bad"
    assert "syncline run" in verdicts["workers"]["advice"]
    assert verdicts["scheduler"]["verdict"] == "bad"
    assert verdicts["database version"]["verdict"] == "ok"
    assert verdicts["rights"]["verdict"] == "ok"
    assert verdicts["clock skew"]["verdict"] == "ok"


def test_doctor_is_content_with_a_sound_system(
    syncline: CommandLine, capsys: pytest.CaptureFixture[str]
) -> None:
    syncline.add()
    add_worker(syncline, "demo")
    syncline.sql(TICK)

    result = syncline("doctor")

    # The tests' own server trades safety for speed, which the doctor rightly dislikes.
    assert result.stderr in ("", "syncline: bad: durability; the advice is above\n")
    assert "1 alive, 3 of 50 slots busy" in result.stdout


def test_doctor_names_the_providers_that_nobody_knows(syncline: CommandLine) -> None:
    syncline.add(provider="tickets")
    add_worker(syncline, "demo")
    add_worker(syncline, silent_seconds=60)

    found = {one["name"]: one["found"] for one in json.loads(syncline("doctor", "--json").stdout)}

    assert found["providers"] == "no live worker knows tickets (1 active connections)"
    assert found["dead workers"] == "1 within a day: web-1:4711"


def test_workers_are_listed(syncline: CommandLine) -> None:
    add_worker(syncline, "demo", "git")
    add_worker(syncline, "demo", silent_seconds=60)

    alive, dead = syncline.json("workers")

    assert (alive["status"], alive["providers"], dead["status"]) == (
        "alive",
        ["demo", "git"],
        "dead",
    )
    assert "web-1" in syncline("workers").stdout


def test_verify_does_not_call_ok_what_it_did_not_judge(syncline: CommandLine) -> None:
    found = {one["name"]: one for one in syncline.json("verify")}
    assert (found["scheduled_in_time"]["verdict"], found["scheduled_in_time"]["ok"]) == (
        "not judged",
        None,
    )

    syncline.sql(TICK)
    found = {one["name"]: one for one in syncline.json("verify")}
    assert (found["scheduled_in_time"]["verdict"], found["scheduled_in_time"]["ok"]) == ("ok", True)


@pytest.fixture
def watching(syncline: CommandLine) -> subprocess.Popen[str]:
    process = syncline.start("verify", "--watch", "--every", "0.1")
    assert process.stdout is not None
    while "tenants_agree" not in process.stdout.readline():
        pass
    return process


@pytest.mark.process
def test_watch_ends_well_while_everything_holds(watching: subprocess.Popen[str]) -> None:
    watching.send_signal(signal.SIGINT)

    assert watching.wait(20) == 0


@pytest.mark.process
def test_watch_remembers_that_something_was_broken(
    syncline: CommandLine, watching: subprocess.Popen[str]
) -> None:
    syncline.json("connections", "sync", syncline.add())
    syncline.sql("UPDATE syncline.sync_jobs SET finished_at = now()")
    assert watching.stdout is not None
    while "finished_has_time is broken by" not in watching.stdout.readline():
        pass
    syncline.sql("DELETE FROM syncline.sync_jobs")
    while "tenants_agree" not in watching.stdout.readline():
        pass

    watching.send_signal(signal.SIGINT)
    _, errors = watching.communicate(timeout=20)

    assert watching.returncode == 1
    assert "invariants were broken: finished_has_time" in errors


def test_shells_can_complete_commands() -> None:
    environment = {
        **os.environ,
        "_SYNCLINE_COMPLETE": "complete_bash",
        "COMP_WORDS": "syncline jobs re",
        "COMP_CWORD": "2",
    }

    result = subprocess.run(
        [sys.executable, "-c", "from syncline.cli import main; main()"],
        env=environment,
        capture_output=True,
        text=True,
    )

    assert "retry" in result.stdout.split()
