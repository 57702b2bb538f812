"""Every command of the documentation runs against a database, or is at least parsed."""

import importlib.util
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from support.commands import CommandLine
from syncline.cli.app import app, global_options_first
from syncline.keyring import new_key

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(syncline [^`…]+)`")
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|CONNECTION\b|\bJOB\b")
SHELLS = {"", "console", "sh", "bash"}
SHELL = {"|", "<", "<<<", ">", "&", "&&"}
PROGRAM: Any = typer.main.get_command(app)
# Commands that are only parsed here, by their first words, with the reason and who runs them.
ONLY_PARSED = {
    "up": "runs until it is stopped: tests/cli/test_processes.py",
    "run": "runs until it is stopped: tests/cli/test_processes.py",
    "--connectors my_connectors run": "runs until it is stopped: tests/cli/test_processes.py",
    "top": "runs until it is stopped: tests/cli/test_screen.py",
    "signals tail": "runs until it is stopped: tests/cli/test_following.py",
    "singer": "installs from an index: tests/connectors/foreign/test_singer_processes.py",
    "connector": "needs the package that the tutorial writes: tests/docs/test_tutorial.py",
    "db": "works on the reader's own server: tests/store/test_embedded.py",
}
# Files that the commands read from the reader's folder.
FILES = {
    "accounts.csv": "tenant_id,provider_slug,external_id\nacme,demo,a-7\n",
    "shop.json": '{"manifest": {}}',
    "notes.json": '{"base_url": "https://kinto.example.com"}',
    "config.json": '{"url": "http://127.0.0.1:8000"}',
    "credentials.json": '{"token": "from-a-file"}',
    "token.json": '{"token": "from-a-file"}',
    "my_connectors.py": "from syncline import Connector\n"
    "class Tickets(Connector):\n    provider = 'tickets'\n",
}


@dataclass(frozen=True)
class Command:
    page: str
    arguments: tuple[str, ...]
    stdin: str | None = None

    def __str__(self) -> str:
        return f"{self.page}: {shlex.join(self.arguments)}"

    @property
    def not_run(self) -> str | None:
        """The reason why it is only parsed, or None."""
        line = shlex.join(self.arguments) + " "
        return next((why for head, why in ONLY_PARSED.items() if line.startswith(head + " ")), None)


def commands_of(page: Path) -> list[Command]:
    """Return the commands in a page's blocks, without redirections and pipes."""
    found = []
    blocks = FENCED.findall(page.read_text("utf-8"))
    for block in (text for language, text in blocks if language in SHELLS):
        for line in block.replace("\\\n", " ").splitlines():
            said = line.removeprefix("$ ")
            if said.startswith("syncline ") and (line != said or is_script(block)):
                found.append(read_command(page, said))
            found += [
                read_command(page, one) for one in re.findall(r"\$\((syncline [^)]*)\)", said)
            ]
    return found


def is_script(block: str) -> bool:
    """Return whether a block has only commands, without prompts and output."""
    return not re.search(r"^\$ ", block, re.MULTILINE)


def read_command(page: Path, line: str) -> Command:
    words = shlex.split(line, comments=True)[1:]
    end = next((place for place, word in enumerate(words) if word in SHELL), len(words))
    stdin = None
    if "<<<" in words:
        stdin = words[words.index("<<<") + 1]
    elif "<" in words:
        stdin = FILES[words[words.index("<") + 1]]
    return Command(str(page.relative_to(ROOT)), tuple(words[:end]), stdin)


COMMANDS = list(dict.fromkeys(command for page in PAGES for command in commands_of(page)))
RUN = [command for command in COMMANDS if command.not_run is None]
PARSED = [command for command in COMMANDS if command.not_run is not None]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A reader's folder, with the files that the pages mention."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("SYNCLINE_SECRET_KEYS", new_key("k1"))
    return tmp_path


@pytest.fixture
def ids(database_url: str, tmp_path: Path) -> dict[str, str]:
    """A connection and its job, which replace the ids of the pages, and the worker of a reader."""
    [[connection, job]] = CommandLine(database_url, tmp_path).sql(
        """
        WITH reader AS (
            INSERT INTO syncline.workers (id, host, pid, version, roles, providers, slots, busy,
                                          stopping, started_at, beat_at)
            VALUES (gen_random_uuid(), 'here', 1, '1', '{executor}', $1, 1, 0,
                    false, now(), now())
        ), added AS (
            INSERT INTO syncline.connections (tenant_id, provider_slug, external_id)
            VALUES ('acme', 'demo', 'support-desk') RETURNING *
        )
        INSERT INTO syncline.sync_jobs (tenant_id, provider_slug, connection_id)
        SELECT tenant_id, provider_slug, id FROM added RETURNING connection_id, id
        """,
        ["tickets", "airbyte", "tap-rest-api-msdk"],
    )
    return {"connection": str(connection), "job": str(job)}


@pytest.mark.parametrize("command", PARSED, ids=str)
def test_a_command_that_is_not_run_can_be_parsed(command: Command) -> None:
    some_id = "01a1dee6-199d-7044-919a-0756fc7a4266"
    parse([UUID.sub(some_id, word) for word in command.arguments])


@pytest.mark.parametrize("command", RUN, ids=str)
def test_a_command_runs(command: Command, database_url: str, ids: dict[str, str]) -> None:
    if "parquet" in command.arguments and importlib.util.find_spec("pyarrow") is None:
        pytest.skip("pyarrow is not installed")
    id_ = ids["job" if command.arguments[0] == "jobs" else "connection"]
    arguments = [UUID.sub(id_, word) for word in command.arguments]
    if "--yes" in options_of(arguments) and "--yes" not in arguments:
        arguments.append("--yes")  # a reader confirms it by hand
    env = {"SYNCLINE_DATABASE_URL": database_url}

    result = CliRunner(env=env).invoke(app, arguments, input=command.stdin)

    finds_a_fault = arguments == ["doctor"]  # no scheduler is alive here
    assert result.exit_code == (1 if finds_a_fault else 0), result.output


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_sentences_exist(page: Path) -> None:
    for line in INLINE.findall(page.read_text("utf-8")):
        words = line.split()[1:]
        known = options_of(words)
        unknown = [word for word in words if word.startswith("--") and word not in known]
        assert unknown == [], f"{line}: {unknown}"


def test_most_commands_are_run() -> None:
    assert len(RUN) >= 40
    for head in ONLY_PARSED:
        assert any(shlex.join(one.arguments).startswith(head) for one in COMMANDS), head


def test_a_command_that_does_not_exist_is_found() -> None:
    for line in (
        "connections add --tenant acme --provider git --external-id a",
        "connections frobnicate",
        "connector run a:B --config notes.json",
    ):
        with pytest.raises(Exception, match=r"No such option|No such command|not JSON"):
            parse(shlex.split(line))


def parse(arguments: list[str]) -> None:
    """Parse a command as the program does, without running it."""
    command, context, rest = PROGRAM, None, global_options_first(arguments)
    name = "syncline"
    while True:
        try:
            context = command.make_context(name, list(rest), parent=context)
        except typer.Exit:  # --version, --help
            return
        if not hasattr(command, "resolve_command"):
            return
        name, command, rest = command.resolve_command(
            context, [*context._protected_args, *context.args]
        )


def options_of(arguments: list[str]) -> set[str]:
    """Return the options that a command knows, the global ones included."""
    found = {"--help", *(name for one in PROGRAM.params for name in one.opts)}
    command = PROGRAM
    for word in global_options_first(arguments):
        if word in getattr(command, "commands", {}):
            command = command.commands[word]
    return found | {name for one in command.params for name in [*one.opts, *one.secondary_opts]}
