"""Every snippet of the documentation runs here, or in a test that is named here."""

import json
import re
import tomllib
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest

from syncline import Settings
from syncline.connectors.caldav.connector import Calendar
from syncline.connectors.config import Configuration, read_configuration
from syncline.connectors.git.connector import _parse_config as read_git
from syncline.connectors.github import Repositories
from syncline.connectors.imap.session import Account
from syncline.connectors.matrix import Homeserver
from syncline.connectors.rest.config import Api

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMANDS = {"", "console"}  # tests/docs/test_docs_commands.py
CONFIGS: dict[str, type[Configuration]] = {
    "caldav": Calendar,
    "github": Repositories,
    "imap": Account,
    "matrix": Homeserver,
    "rest": Api,
}
RUN_ELSEWHERE = {
    ("README.md", "python"): "tests/docs/test_readme.py, and the last of them here",
    ("docs/guide/api.md", "sh"): "tests/api/test_guide.py",
    ("docs/guide/client.md", "python"): "tests/client/test_guide.py",
    ("docs/guide/first-connector.md", "python"): "tests/docs/test_tutorial.py",
    ("docs/guide/first-connector.md", "json"): "tests/docs/test_tutorial.py",
    ("docs/guide/operating.md", "python"): "tests/services/test_audit.py: acting_as",
    ("docs/guide/operating.md", "sql"): "tests/docs/test_docs.py",
    ("docs/guide/http.md", "python"): "tests/http/test_in_an_engine.py",
    ("docs/reference/schema.md", "sql"): "tests/docs/test_docs.py, tests/store/test_rights.py",
    ("docs/reference/sdk.md", "python"): "tests/docs/test_docs.py",
    ("docs/spec/data.md", "sql"): "tests/services/test_data_rules.py: the index that it defines",
}
NOT_RUN = {
    ("docs/guide/first-connector.md", "sh"): "installs Syncline, which the tests have already",
    ("docs/spec/README.md", "python"): "the head of a test, to show how tests are named",
}


def snippets(language: str) -> list[tuple[str, str]]:
    """Return the page and the text of each snippet in a language."""
    return [
        (str(page.relative_to(ROOT)), text)
        for page in PAGES
        for found, text in FENCED.findall(page.read_text("utf-8"))
        if found == language
    ]


def test_every_snippet_is_run_or_named() -> None:
    found = {
        (str(page.relative_to(ROOT)), language)
        for page in PAGES
        for language, _ in FENCED.findall(page.read_text("utf-8"))
        if language not in COMMANDS
    }
    here = {(page, kind) for kind in ("json", "toml") for page, _ in snippets(kind)}

    assert found - here == (RUN_ELSEWHERE.keys() | NOT_RUN.keys()) - here
    for where in RUN_ELSEWHERE.values():
        for path in re.findall(r"tests/[\w/]+\.py", where):
            assert (ROOT / path).is_file(), path


@pytest.mark.parametrize(("page", "text"), snippets("toml"), ids=lambda value: value[:30])
def test_settings_are_accepted(
    page: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "entry-points" in text:  # of a package that announces connectors
        [announced] = tomllib.loads(text)["project"]["entry-points"]["syncline.connectors"].values()
        assert re.fullmatch(r"[\w.]+:\w+", announced)
        return
    (tmp_path / "syncline.toml").write_text(text)
    monkeypatch.chdir(tmp_path)

    chosen = Settings().model_dump(exclude_unset=True)

    assert chosen.keys() == tomllib.loads(text).keys()


@pytest.mark.parametrize(("page", "text"), snippets("json"), ids=lambda value: value[:30])
def test_configs_are_accepted(page: str, text: str) -> None:
    value = json.loads(text)

    if page.startswith("docs/connectors/"):
        provider = Path(page).stem
        assert (
            read_git(value) if provider == "git" else read_configuration(CONFIGS[provider], value)
        )


async def test_the_readmes_example_of_a_test_runs() -> None:
    """It has a temporary database and a clock that the test moves."""
    [*_, example] = [text for page, text in snippets("python") if page == "README.md"]
    namespace: dict[str, Any] = {"script": []}
    # Imported by the snippets before it.
    exec("from datetime import UTC, datetime\nfrom syncline import Engine, Settings", namespace)

    exec(
        compile(f"async def example():\n{indent(example, '    ')}", "README.md", "exec"), namespace
    )

    await namespace["example"]()
