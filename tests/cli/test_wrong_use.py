"""Wrong use: one line on stderr that says what is wrong, and exit code 2."""

import pytest
from typer.testing import CliRunner

from syncline.cli.app import app, global_options_first

SOME_ID = "01993f8e-5c1e-7d3a-9c55-0f4be16bd1a0"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("connections show abc", "'abc' is neither a UUID nor TENANT/PROVIDER/EXTERNAL_ID"),
        ("jobs show abc", "'abc' is not a UUID (`syncline jobs list` shows"),
        ("jobs list --connection abc", "'abc' is neither a UUID nor"),
        ("connections show", "Missing argument 'CONNECTION'"),
        ("connections list --status lost", "'lost' is not one of 'active', 'paused'"),
        ("jobs list --type weekly", "'weekly' is not one of"),
        ("jobs list --limit 0", "greater than or equal to 1"),
        ("conections list", "Did you mean 'connections'"),
        ("run --fast", "No such option: --fast"),
        ("run --port 70000", "less than or equal to 65535"),
        ("--log-level loud providers", "'loud' is not one of"),
        ("connections add acme git a --config [1]", "expected a JSON object"),
        ("connections add acme git a --config {", "not JSON"),
        ("connections add acme git a --interval 59", "greater than or equal to 60"),
        (f"connections set-interval {SOME_ID}", "either a number of seconds or --default"),
        (f"connections set-interval {SOME_ID} 60 --default", "either a number of seconds or"),
        (f"connections set-cursor {SOME_ID}", "either a cursor in JSON or --clear"),
        (f"connections set-cursor {SOME_ID} NaN", "NaN is not valid JSON"),
        (f"connections delete {SOME_ID}", "add --yes"),
    ],
)
def test_wrong_use_is_reported_in_one_line(arguments: str, complaint: str) -> None:
    result = CliRunner().invoke(app, arguments.split())

    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("syncline: ")
    assert complaint in line
    assert "--help`)" in line


@pytest.mark.parametrize(
    ("given", "ordered"),
    [
        (["run", "--schema", "s"], ["--schema", "s", "run"]),
        (["run", "--schema=s", "--debug"], ["--schema=s", "--debug", "run"]),
        (["a", "--connectors", "x", "b", "--connectors", "y"], None),
        (["run", "--schema"], ["--schema", "run"]),
        (["set", "--", "--schema", "s"], ["set", "--", "--schema", "s"]),
        (["add", "--config", "{}"], ["add", "--config", "{}"]),
    ],
)
def test_global_options_may_stand_anywhere(given: list[str], ordered: list[str] | None) -> None:
    expected = ordered or ["--connectors", "x", "--connectors", "y", "a", "b"]

    assert global_options_first(given) == expected
