"""`syncline connector …`: made, tried and checked without a database."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from syncline.cli.app import app

CONNECTOR = "support.help_desk:HelpDesk"
NOWHERE = {"SYNCLINE_DATABASE_URL": "postgresql://nobody@127.0.0.1:9/none"}


def syncline(*arguments: str, stdin: str | None = None) -> Result:
    """Run a command where no database can be reached."""
    return CliRunner(env=NOWHERE).invoke(app, list(arguments), input=stdin)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An author's folder, whose modules are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("syncline_"):
            del sys.modules[name]


class Api(BaseHTTPRequestHandler):
    """Three items, two a page, for whoever brings the token if there is one."""

    def do_GET(self) -> None:
        after = int(re.findall(r"after=(\d+)", self.path)[0])
        items = [
            {"id": n, "created_at": f"2025-01-0{n}T09:00:00Z", "sent": str(self.headers)}
            for n in (1, 2, 3)
            if n > after
        ]
        body = json.dumps({"items": items[:2]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def api() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Api) as server:
        thread = Thread(target=partial(server.serve_forever, poll_interval=0.02))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_new_package_passes_its_own_tests_and_checks(folder: Path) -> None:
    made = syncline("connector", "new", "my-desk")
    package = folder / "my-desk"
    written = sorted(str(path.relative_to(package)) for path in package.rglob("*.*"))
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:schemathesis"],
        cwd=package,
        capture_output=True,
        text=True,
    )

    assert made.exit_code == 0, made.output
    assert written == [
        "README.md",
        "pyproject.toml",
        "syncline_my_desk.py",
        "tests/calls.json",
        "tests/test_syncline_my_desk.py",
    ]
    assert tested.returncode == 0, tested.stdout
    assert "13 passed" in tested.stdout


def test_a_new_package_can_be_installed_and_is_found(folder: Path) -> None:
    syncline("connector", "new", "my-desk")
    target = folder / "installed"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    pip += ["--no-compile", "--disable-pip-version-check"]
    subprocess.run(
        [*pip, "--no-build-isolation", "--target", target, folder / "my-desk"],
        check=True,
        capture_output=True,
    )
    listed = subprocess.run(
        [sys.executable, "-m", "syncline", "providers", "--json"],
        env={"PYTHONPATH": str(target)},
        capture_output=True,
        text=True,
        check=True,
    )

    found = {entry["provider"]: entry for entry in json.loads(listed.stdout)}
    assert found["my-desk"]["connector"] == "syncline_my_desk.MyDesk"
    assert found["my-desk"]["from"] == "syncline-my-desk 0.1.0"


def test_nothing_is_overwritten(folder: Path) -> None:
    (folder / "desk").mkdir()
    (folder / "desk" / "README.md").write_text("mine")

    refused = syncline("connector", "new", "desk")

    assert refused.exit_code == 1
    assert "desk/README.md exists" in refused.stderr
    assert [path.name for path in (folder / "desk").iterdir()] == ["README.md"]


@pytest.mark.parametrize("name", ["Desk", "1desk", "my_desk", "a--b", "../x", "", "x" * 51])
def test_a_bad_name_is_wrong_use(name: str, folder: Path) -> None:
    refused = syncline("connector", "new", name)

    assert refused.exit_code == 2
    assert list(folder.iterdir()) == []


def test_a_name_may_be_a_word_of_python(folder: Path) -> None:
    assert syncline("connector", "new", "none").exit_code == 0
    compile((folder / "none" / "syncline_none.py").read_text(), "syncline_none.py", "exec")


def test_a_dry_run_shows_calls_signals_and_cursor(folder: Path, api: str) -> None:
    syncline("connector", "new", "desk", "--folder", ".")
    config = json.dumps({"url": api})

    shown = syncline("connector", "run", "syncline_desk:Desk", "--config", config)

    assert shown.exit_code == 0, shown.output
    assert re.search(rf"GET +{api}/items\?after=0&limit=2 +200", shown.stdout)
    assert len(re.findall("item_created", shown.stdout)) == 3
    assert re.search(r'Cursor +\{"after": 3\}', shown.stdout)
    assert re.search("More waiting +no", shown.stdout)


def test_a_dry_run_starts_and_stops_where_it_is_told(folder: Path, api: str) -> None:
    syncline("connector", "new", "desk", "--folder", ".")
    (folder / "config.json").write_text(json.dumps({"url": api}))
    (folder / "cursor.json").write_text('{"after": 1}')
    run = ("connector", "run", "syncline_desk:Desk", "--config", "@config.json", "--json")

    first = json.loads(syncline(*run, "--pages", "1").stdout)
    rest = json.loads(syncline(*run, "--cursor", "@cursor.json").stdout)

    assert (first["cursor"], first["has_more"], first["error"]) == ({"after": 2}, True, None)
    assert [call["status"] for call in first["calls"]] == [200]
    assert [keys(page) for page in rest["pages"]] == [["2", "3"], []]
    assert rest["pages"][0]["signals"][0]["occurred_at"] == "2025-01-02T09:00:00Z"


def test_a_failed_dry_run_tells_and_still_shows_its_calls(
    folder: Path, unused_tcp_port: int
) -> None:
    syncline("connector", "new", "desk", "--folder", ".")
    config = json.dumps({"url": f"http://127.0.0.1:{unused_tcp_port}"})

    failed = syncline("connector", "run", "syncline_desk:Desk", "--config", config, "--json")

    assert failed.exit_code == 1
    told = json.loads(failed.stdout)
    assert (told["error"]["class"], told["calls"][0]["error"]) == ("Transient", "ConnectError")
    assert "syncline: Transient: GET" in failed.stderr


def test_a_recording_holds_no_credentials_and_can_be_checked(folder: Path, api: str) -> None:
    syncline("connector", "new", "desk", "--folder", ".")
    about = ("syncline_desk:Desk", "--config", json.dumps({"url": api}), "--credentials-stdin")
    secret = json.dumps({"token": "t0p-s3cret"})

    ran = syncline("connector", "run", *about, "--record", "calls.json", stdin=secret)
    checked = syncline("connector", "check", *about, "--replay", "calls.json", stdin=secret)

    assert ran.exit_code == 0, ran.output
    assert "t0p-s3cret" not in ran.output + (folder / "calls.json").read_text()
    assert "Bearer ***" in (folder / "calls.json").read_text()
    assert checked.exit_code == 0, checked.output


def test_a_failed_check_is_reported(folder: Path) -> None:
    (folder / "forgetful.py").write_text(
        "from datetime import UTC, datetime\n"
        "from syncline import Connector, Signal, SyncResult\n"
        "class Forgetful(Connector):\n"
        "    provider = 'forgetful'\n"
        "    async def sync(self, connection, cursor):\n"
        "        return SyncResult([Signal('x', datetime(2025, 1, 1, tzinfo=UTC), {})])\n"
    )

    checked = syncline("connector", "check", "forgetful:Forgetful", "--json")

    assert checked.exit_code == 1
    results = {result["check"]: result for result in json.loads(checked.stdout)}
    failed = [name for name, result in results.items() if result["result"] == "failed"]
    assert failed == ["dedupe_keys_are_stable"]
    assert "no dedupe_key" in results[failed[0]]["why"]
    assert checked.stderr == "syncline: 1 of 12 checks failed\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nothing"], "'nothing' must be MODULE:CLASS"),
        (["no_such_module:X"], "No module named 'no_such_module'"),
        (["support.help_desk:Nothing"], "support.help_desk has no connector Nothing"),
        (["support.help_desk:Subject"], "support.help_desk has no connector Subject"),
        ([CONNECTOR, "--config", "[]"], "expected a JSON object"),
        ([CONNECTOR, "--config", "@nowhere.json"], "cannot read nowhere.json"),
    ],
)
def test_what_cannot_be_run_is_reported(arguments: list[str], complaint: str, folder: Path) -> None:
    for command in ("run", "check"):
        refused = syncline("connector", command, *arguments)

        assert refused.exit_code in (1, 2)
        assert complaint in refused.stderr
        assert refused.stderr.count("\n") == 1


def keys(page: dict[str, Any]) -> list[str]:
    return [signal["dedupe_key"] for signal in page["signals"]]


def test_in_a_pipe_what_went_wrong_comes_after_the_results(tmp_path: Path) -> None:
    (tmp_path / "broken_desk.py").write_text(
        "from syncline import Connector, Permanent\n"
        "class Desk(Connector):\n"
        "    provider = 'desk'\n"
        "    def sync(self, connection, cursor):\n"
        "        raise Permanent('no such desk')\n"
    )
    ran = subprocess.run(
        [sys.executable, "-m", "syncline", "connector", "run", "broken_desk:Desk"],
        cwd=tmp_path,
        env={},  # PYTHONUNBUFFERED would hide it
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )

    assert ran.stdout.splitlines()[-2:] == [
        "More waiting  no",
        "syncline: Permanent: no such desk",
    ]


BUGGY = """
from syncline import Connector


class Buggy(Connector):
    provider = "buggy"

    async def sync(self, connection, cursor):
        return read_page(connection.credentials["token"])


def read_page(token):
    raise ValueError("cannot read " + token)
"""


def test_debug_shows_where_a_connector_raised(folder: Path) -> None:
    (folder / "syncline_buggy.py").write_text(BUGGY)
    run = ("connector", "run", "syncline_buggy:Buggy", "--credentials-stdin")
    credentials = '{"token": "hunter2-hunter2"}'

    usual = syncline(*run, stdin=credentials)
    debug = syncline(*run, "--debug", stdin=credentials)

    assert usual.exit_code == debug.exit_code == 1
    assert usual.stderr == "syncline: ValueError: cannot read *** (`--debug` shows where)\n"
    assert 'syncline_buggy.py", line 13, in read_page' in debug.stderr
    assert "hunter2" not in usual.output + debug.output
