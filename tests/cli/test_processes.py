"""Real processes: how they start, what they serve, and how signals end them."""

import asyncio
import gc
import json
import os
import pty
import re
import signal
import socket
import time
from contextlib import suppress
from typing import IO

import asyncpg
import httpx2
import pytest
from typer.testing import CliRunner

from support.commands import CommandLine, Process
from syncline.cli.app import app

pytestmark = pytest.mark.process

STUBBORN = """
import asyncio
from syncline import Connector

class Stubborn(Connector):
    provider = "stubborn"

    async def sync(self, connection, cursor):
        await asyncio.sleep(3600)
"""
COLLECTOR = """
import gc
from datetime import UTC, datetime
from syncline import Connector, Signal, SyncResult

class Collector(Connector):
    provider = "collector"

    async def sync(self, connection, cursor):
        payload = {"thresholds": list(gc.get_threshold())}
        return SyncResult([Signal("seen", datetime(2025, 1, 1, tzinfo=UTC), payload)])
"""
# Sends itself a signal in the midst of importing a module.
INTERRUPTED = """
import os, sys

_, module, number = sys.argv

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), int(number))

sys.meta_path.insert(0, Finder())
from syncline.cli import main
sys.argv = ["syncline", "run"]
main()
"""


def read_until(stream: IO[str] | None, pattern: str) -> re.Match[str]:
    """Return the first match in a process's output; the test's own timeout is the limit."""
    assert stream is not None
    for line in stream:
        if match := re.search(pattern, line):
            return match
    raise AssertionError(f"it ended without saying {pattern!r}")


@pytest.mark.parametrize("command", ["run", "up"])
def test_it_waits_for_a_database_that_is_not_there_yet(syncline: CommandLine, command: str) -> None:
    process = syncline.start(command, SYNCLINE_DATABASE_URL="postgresql://127.0.0.1:1/nowhere")
    read_until(process.stderr, "waiting for the database: ")
    process.send_signal(signal.SIGTERM)

    assert process.wait() == 0


def test_run_serves_health_and_metrics_and_ends_cleanly(syncline: CommandLine) -> None:
    process = syncline.start("run", "--log-format", "json")
    address = read_until(process.stderr, r"serving (http://[\d.:]+)")[1]

    with httpx2.Client(base_url=address, trust_env=False) as client:
        answers = {path: client.get(path) for path in ("/healthz", "/readyz", "/metrics", "/")}
    process.send_signal(signal.SIGTERM)
    _, logs = process.communicate()

    codes = {path: answer.status_code for path, answer in answers.items()}
    assert codes == {"/healthz": 200, "/readyz": 200, "/metrics": 200, "/": 404}
    assert process.returncode == 0
    events = [json.loads(line)["event"] for line in logs.splitlines()]
    assert events[-2:] == ["scheduler.stopped", "executor.stopped"]


def test_roles_can_be_left_out(syncline: CommandLine) -> None:
    process = syncline.start("run", "--no-scheduler", "--log-format", "json")
    read_until(process.stderr, "serving")

    process.send_signal(signal.SIGTERM)
    _, logs = process.communicate()

    assert [json.loads(line)["event"] for line in logs.splitlines()] == ["executor.stopped"]


def test_a_worker_collects_garbage_rarely(syncline: CommandLine) -> None:
    (syncline.folder / "collector.py").write_text(COLLECTOR)
    syncline.add(provider="collector")
    process = syncline.start("run", "--connectors", "collector")
    while not (stored := syncline.json("signals", "list")):
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    process.communicate()

    assert stored[0]["payload"]["thresholds"][0] > gc.get_threshold()[0]


def start_stubborn(syncline: CommandLine, grace: str) -> Process:
    """Start a process whose only job never ends, and wait until it runs."""
    (syncline.folder / "stubborn.py").write_text(STUBBORN)
    syncline.add(provider="stubborn")
    environment = {"SYNCLINE_EXECUTOR__SHUTDOWN_GRACE_SECONDS": grace}
    process = syncline.start("run", "--connectors", "stubborn", **environment)
    while not syncline.json("jobs", "list", "--status", "running"):
        assert process.poll() is None
    return process


def test_a_job_that_does_not_end_in_time_is_given_back(syncline: CommandLine) -> None:
    process = start_stubborn(syncline, grace="0")

    process.send_signal(signal.SIGINT)

    assert process.wait() == 0
    (job,) = syncline.json("jobs", "list")
    assert (job["status"], job["attempts"]) == ("queued", 0)


def test_a_second_signal_leaves_at_once(syncline: CommandLine) -> None:
    process = start_stubborn(syncline, grace="600")

    while process.poll() is None:
        process.send_signal(signal.SIGTERM)
        time.sleep(0.05)

    assert process.returncode == 1
    (job,) = syncline.json("jobs", "list")
    assert job["status"] == "running"  # left to the reaper


@pytest.mark.parametrize(
    ("module", "number"),
    [("typer", signal.SIGINT), ("asyncpg", signal.SIGTERM), ("uvicorn", signal.SIGINT)],
    ids=["typer", "asyncpg", "uvicorn"],
)
def test_a_signal_in_the_midst_of_the_start_ends_in_silence(
    syncline: CommandLine, module: str, number: signal.Signals
) -> None:
    process = syncline.start_program("-c", INTERRUPTED, module, str(int(number)))
    printed = process.communicate()

    assert (process.returncode, printed) == (0, ("", ""))


@pytest.mark.parametrize(("command", "code"), [(["run"], 0), (["jobs", "list"], 1)])
def test_a_signal_while_the_database_is_being_opened(
    syncline: CommandLine, command: list[str], code: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://me@127.0.0.1:{silent.getsockname()[1]}/app?sslmode=disable"
        process = syncline.start(*command, SYNCLINE_DATABASE_URL=url)
        with silent.accept()[0]:
            process.send_signal(signal.SIGINT)
            _, complaint = process.communicate()

    assert process.returncode == code
    assert complaint == ("" if code == 0 else "syncline: interrupted\n")


def test_a_port_in_use_is_reported_in_one_line(syncline: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = syncline.start("up", "--port", str(taken.getsockname()[1]))
        _, complaint = process.communicate()

    assert process.returncode == 1
    assert re.fullmatch(r"syncline: api\.port is \d+, which is in use .*\n", complaint)


def test_the_demo_syncs_takes_a_free_port_and_can_be_repeated(syncline: CommandLine) -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):  # somebody else has it already, which is as good
            taken.bind(("127.0.0.1", 8080))
            taken.listen()
        process = syncline.start("up", "--demo", SYNCLINE_API__PORT="")
        read_until(process.stdout, "is not in a git repository, so the demo syncs none")
        read_until(process.stdout, "Added 12 demo connections")
        address = read_until(process.stdout, r"Syncline is running; see (http://[\d.:]+)")[1]
    read_until(process.stdout, r"\d\d:\d\d:\d\d  12 connections: .*; [1-9]\d* signals")
    page = httpx2.get(f"{address}/connections", trust_env=False).text
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate()

    assert not address.endswith(":8080")
    assert "support-desk" in page
    assert re.search(r"Stopped\. The data stays in the database test_\d+ on this machine\.", rest)
    assert process.returncode == 0
    assert b"Added 0 demo connections; 12 existed already" in shown_in_a_terminal(syncline)


def shown_in_a_terminal(syncline: CommandLine) -> bytes:
    """Return what the demo shows where its view is live, until it is interrupted."""
    ours, theirs = pty.openpty()
    process = syncline.start("up", "--demo", stdout=theirs)
    os.close(theirs)
    seen = b""
    while b"Latest signals" not in seen:
        seen += os.read(ours, 65536)
    process.send_signal(signal.SIGINT)
    while b"Stopped." not in seen:
        seen += os.read(ours, 65536)
    process.communicate()
    os.close(ours)

    assert process.returncode == 0
    assert b"Recent jobs" in seen
    assert seen.rindex(b"\x1b[?25h") > seen.rindex(b"\x1b[?25l")  # the cursor is back
    return seen


def test_the_embedded_database() -> None:
    def run(*arguments: str) -> tuple[int, str]:
        result = CliRunner(env={"SYNCLINE_DATABASE_URL": ""}).invoke(app, list(arguments))
        return result.exit_code, result.stdout

    assert run("migrate")[0] == 0
    code, url = run("db", "url")
    assert code == 0
    assert asyncio.run(count_connections(url.strip())) == 0
    assert run("db", "stop") == (0, "Stopped the embedded database.\n")
    assert run("db", "upgrade")[1].startswith("Nothing to do")
    with pytest.raises(OSError, match=r"No such file|refused"):
        asyncio.run(count_connections(url.strip()))


async def count_connections(url: str) -> int:
    session = await asyncpg.connect(url)
    try:
        count: int = await session.fetchval("SELECT count(*) FROM syncline.connections")
        return count
    finally:
        await session.close()
