"""The help of every command, and the page that documents them."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from syncline.cli.app import app

PAGE = (Path(__file__).parents[2] / "docs/reference/cli.md").read_text()
HEAVY = ("asyncpg", "fastapi", "jinja2", "pydantic_settings", "structlog", "uvicorn")


def walk(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every command and group below, with the words that lead to it."""
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from walk(below, (*path, name))


COMMANDS = dict(walk(get_command(app)))


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_shows_an_example(path: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, [*path, "--help"])

    assert result.exit_code == 0
    (example,) = re.findall(r"Example: .*\bsyncline ([a-z- ]*)", " ".join(result.output.split()))
    assert example.startswith(" ".join(path))


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_command_and_options_are_documented(path: tuple[str, ...]) -> None:
    command = COMMANDS[path]
    title = f"`{' '.join(['syncline', *path])}`"
    section = re.search(rf"^#+ {re.escape(title)}$(.*?)(?=^#+ `|\Z)", PAGE, re.M | re.S)

    assert section is not None, f"docs/reference/cli.md has no section {title}"
    for parameter in command.params:
        for name in parameter.opts if parameter.param_type_name == "option" else ():
            if name not in ("--help", "-h"):
                assert f"`{name}" in section[1], f"{title}: {name} is undocumented"


def test_every_documented_command_exists() -> None:
    documented = re.findall(r"^#+ `syncline ?([^`]*)`$", PAGE, re.M)

    assert {tuple(words.split()) for words in documented} == set(COMMANDS)


def test_the_help_loads_nothing_heavy() -> None:
    script = (
        "import sys; from syncline.cli.app import app\n"
        "try: app(['--help'])\n"
        f"finally: print([m for m in {HEAVY} if m in sys.modules], file=sys.stderr)"
    )

    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)

    assert "Usage: syncline" in result.stdout
    assert result.stderr.strip() == "[]"


@pytest.mark.parametrize("path", [(), ("connections",), ("db",)], ids=" ".join)
def test_without_a_command_the_help_is_shown_as_wrong_use(path: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, list(path))

    assert result.exit_code == 2
    assert result.stderr.startswith("Usage: syncline")
