"""What goes wrong is told in one line without secrets, and exits with 1."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from support.commands import CommandLine
from syncline.cli.app import app
from syncline.cli.errors import report
from syncline.errors import Invalid
from syncline.testing.database import TemporaryServer

NOBODY = "127.0.0.1:1"  # nothing listens on port 1


def fail(*arguments: str) -> str:
    """Return the one line that a failing command prints."""
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("syncline: ")
    return line


@pytest.mark.parametrize(
    "command", [["run", "--port", "0", "--no-wait"], ["migrate"], ["connections", "list"]]
)
def test_an_unreachable_database(command: list[str]) -> None:
    line = fail("--database-url", f"postgresql://me:hunter2@{NOBODY}/app", *command)

    assert line.startswith("syncline: the database cannot be reached: ")
    assert "hunter2" not in line


@pytest.mark.parametrize(
    "url",
    [
        "mysql://me:hunter2@db/app",
        "postgresql://me:hunter2@db:port/app",
        "postgresql://me:hun/ter2@db/app",
        "postgresql://me:hunter2@db/app?sslmode=nonsense",
        "hunter2",
    ],
)
def test_a_database_url_that_cannot_be_read(url: str) -> None:
    line = fail("--database-url", url, "migrate")

    assert line.startswith("syncline: database_url is not a valid URL; write it as ")
    assert "hun" not in line


def test_a_database_that_does_not_exist(syncline: CommandLine) -> None:
    elsewhere = syncline.url.replace("/test_", "/no_such_")

    line = fail("--database-url", elsewhere, "migrate")

    assert line.startswith("syncline: the database refused: database ")
    assert line.endswith("does not exist")


def test_a_missing_schema(server: TemporaryServer) -> None:
    url = server.create_database()

    for command in (["run", "--port", "0"], ["verify"], ["jobs", "list"]):
        line = fail("--database-url", url, *command)
        assert line.endswith("has no Syncline tables yet: run `syncline migrate`"), command
    server.drop_database(url)


def test_a_bad_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYNCLINE_SCHEDULER__TICK_INTERVAL_SECONDS", "0")

    line = fail("run")

    assert line.startswith("syncline: scheduler.tick_interval_seconds is ")


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (
            "no_such_module",
            "cannot load the connectors of 'no_such_module': ModuleNotFoundError: No module named",
        ),
        ("json", "defines no connector"),
        ("broken", "cannot load the connectors of 'broken': RuntimeError: token=***"),
    ],
)
def test_connectors_that_cannot_be_loaded(
    module: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.py").write_text("raise RuntimeError('token=hunter2')")
    monkeypatch.syspath_prepend(tmp_path)

    assert reason in fail("providers", "--connectors", module)


def test_an_address_that_others_can_reach_is_refused(database_url: str) -> None:
    line = fail("--database-url", database_url, "run", "--host", "0.0.0.0", "--port", "0")

    assert "api.host is '0.0.0.0'" in line
    assert "refuses to start without an API key" in line


def test_up_fails_at_once_where_it_should_not_wait_for_the_database() -> None:
    url = f"postgresql://me:hunter2@{NOBODY}/app"

    result = CliRunner().invoke(app, ["--database-url", url, "up", "--port", "0", "--no-wait"])

    assert result.exit_code == 1
    assert result.stderr.startswith("syncline: the database cannot be reached: ")
    assert "hunter2" not in result.output


def test_debug_shows_the_traceback() -> None:
    url = f"postgresql://me:hunter2@{NOBODY}/app"

    result: Result = CliRunner().invoke(app, ["--database-url", url, "migrate", "--debug"])

    assert result.exit_code == 1
    assert "Traceback" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("syncline: the database cannot be reached")
    assert "hunter2" not in result.stderr


@pytest.mark.parametrize("bug", [ValueError("token=hunter2"), KeyError("x"), LookupError()])
def test_a_bug_is_one_line_that_says_how_to_see_more(
    capsys: pytest.CaptureFixture[str], bug: Exception
) -> None:
    assert report(bug, debug=False) == 1

    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"syncline: {type(bug).__name__}")
    assert line.endswith("(`syncline --debug …` shows where)")
    assert "hunter2" not in line


def test_the_trace_of_a_bug_holds_no_secret(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise ValueError("token=hunter2")
    except ValueError as bug:
        report(bug, debug=True)

    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert "hunter2" not in shown


def test_a_refusal_is_its_own_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(Invalid("limit", "is 0; it must be positive"), debug=False) == 1

    assert capsys.readouterr().err == "syncline: limit is 0; it must be positive\n"
