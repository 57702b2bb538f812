"""The documentation is complete: settings, schema, SDK and links; and its examples run."""

import dataclasses
import inspect
import os
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

import syncline
import syncline.testing as syncline_testing
from syncline import Connection, Settings, Signal, SyncError, SyncResult, Transient
from syncline.errors import SettingsError
from syncline.testing.database import TemporaryServer

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
MACHINE_PATH = re.compile(r"(?<![\w.~/])/(?:home|root|Users|work|mnt|private)/")


def read(name: str) -> str:
    return (REFERENCE / name).read_text("utf-8")


def table_rows(text: str) -> Iterator[list[str]]:
    """Yield the cells of each row whose first cell is a name in `code`."""
    for line in text.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if cells and re.fullmatch(r"`[^`]+`", cells[0]):
            yield [cells[0].strip("`"), *cells[1:]]


def section(text: str, heading: str) -> str:
    """Return the text under a heading of the second level."""
    return text.partition(f"\n{heading}\n")[2].partition("\n## ")[0]


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


SETTINGS, SCHEMA, SDK = read("settings.md"), read("schema.md"), read("sdk.md")
DOCUMENTED_SETTINGS = {row[0]: row for row in table_rows(SETTINGS) if len(row) == 5}
DOCUMENTED_TABLES = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##)", SCHEMA, re.MULTILINE | re.DOTALL))


def test_every_setting_is_documented_and_no_other() -> None:
    assert sorted(DOCUMENTED_SETTINGS) == sorted(name for name, _ in setting_fields())


def test_the_variables_of_settings_are_right() -> None:
    for name, row in DOCUMENTED_SETTINGS.items():
        assert row[1] == f"`SYNCLINE_{name.upper().replace('.', '__')}`"


def test_the_defaults_of_settings_are_right() -> None:
    for name, field in setting_fields():
        default = field.get_default(call_default_factory=True)
        assert DOCUMENTED_SETTINGS[name][2] == shown_default(default), name


def test_the_bounds_of_settings_are_right() -> None:
    for name, field in setting_fields():
        bounds = DOCUMENTED_SETTINGS[name][3]
        shown = {Decimal(text) for text in re.findall(r"[\d.]*\d", bounds)}
        limits = {
            Decimal(str(getattr(rule, kind)))
            for rule in field.metadata
            for kind in ("ge", "gt", "le", "lt")
            if getattr(rule, kind, None) is not None
        }
        assert limits <= shown or "`jitter_pct_max`" in bounds, name


def test_the_example_file_is_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [example] = blocks(SETTINGS, "toml")
    (tmp_path / "syncline.toml").write_text(example)
    monkeypatch.chdir(tmp_path)

    assert Settings().rate_limit.backoff("github").base_seconds == 30


def test_the_example_of_an_error_is_real() -> None:
    with pytest.raises(SettingsError) as refused:
        Settings(scheduler={"tick_interval_seconds": 0})

    assert f"\n{refused.value}\n" in SETTINGS


def setting_fields(
    model: type[BaseModel] = Settings, prefix: str = ""
) -> Iterator[tuple[str, FieldInfo]]:
    for name, field in model.model_fields.items():
        inner: Any = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from setting_fields(inner, f"{prefix}{name}.")
        else:
            yield prefix + name, field


def shown_default(value: Any) -> str:
    if value in (None, [], {}):
        return "none"
    return f"`{str(value).lower()}`"


async def test_every_column_is_documented_with_its_type_and_no_other(database_url: str) -> None:
    found = await fetch(
        database_url,
        "SELECT table_name, column_name, data_type FROM information_schema.columns"
        " WHERE table_schema = 'syncline'",
    )

    short = {"timestamp with time zone": "timestamptz"}
    documented = {
        (table, row[0], row[1])
        for table, text in DOCUMENTED_TABLES.items()
        for row in table_rows(text)
    }
    assert documented == {
        (table, column, short.get(type_, type_)) for table, column, type_ in found
    }


async def test_every_index_is_documented_and_no_other(database_url: str) -> None:
    found = await fetch(
        database_url, "SELECT indexname, tablename FROM pg_indexes WHERE schemaname = 'syncline'"
    )

    assert {(row[0], row[1]) for row in table_rows(section(SCHEMA, "## Indexes"))} == set(found)


async def test_every_function_is_documented(database_url: str) -> None:
    found = await fetch(
        database_url,
        "SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'syncline'::regnamespace",
    )

    for (signature,) in found:
        assert f"`{signature.removeprefix('syncline.')}`" in SCHEMA


async def test_the_documented_statements_work(database_url: str) -> None:
    for block in blocks(section(SCHEMA, "## By hand"), "sql"):
        for statement in block.split(";\n"):
            await fetch(database_url, statement)

    found = await fetch(database_url, "SELECT status, interval_stored FROM syncline.connections")
    assert found == [("paused", "300")]


async def test_the_statement_for_an_adaptive_interval_works(database_url: str) -> None:
    guide = (ROOT / "docs" / "guide" / "operating.md").read_text("utf-8")
    [statement] = blocks(guide, "sql")
    await fetch(
        database_url,
        "INSERT INTO syncline.connections (tenant_id, provider_slug, external_id, metadata)"
        """ VALUES ('acme', 'rest', 'a', '{"sync": {}}')""",
    )

    await fetch(database_url, statement)

    [(stored,)] = await fetch(
        database_url, "SELECT metadata #>> '{sync,adaptive,max_seconds}' FROM syncline.connections"
    )
    assert stored == "7200"


async def fetch(url: str, query: str) -> list[tuple[Any, ...]]:
    session = await asyncpg.connect(url)
    try:
        return [tuple(row) for row in await session.fetch(query)]
    finally:
        await session.close()


async def test_the_examples_of_the_sdk_run(server: TemporaryServer) -> None:
    @asynccontextmanager
    async def database_of_the_session() -> AsyncIterator[str]:
        url = server.create_database()
        yield url
        server.drop_database(url)

    namespace: dict[str, Any] = {}
    for block in blocks(SDK, "python"):
        exec(compile(block, "sdk.md", "exec"), namespace)
    # The README's example and the tutorial start servers of their own, which takes seconds.
    namespace["temporary_database"] = database_of_the_session

    tests = [value for name, value in namespace.items() if name.startswith("test_")]
    assert len(tests) == 3
    for test in tests:
        await test()


async def test_the_example_of_a_child_process_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "convert-report"
    program.write_text("#!/bin/sh\nread report; echo $report; echo no paper >&2; exit $report\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    namespace: dict[str, Any] = {}
    for block in blocks(SDK, "python"):
        exec(compile(block, "sdk.md", "exec"), namespace)
    reports = namespace["Reports"](None)

    assert await reports.convert(b"0\n") == b"0\n"
    with pytest.raises(Transient, match="no paper"):
        await reports.convert(b"1\n")


@pytest.mark.parametrize("kind", [Connection, SyncResult, Signal])
def test_every_field_is_documented(kind: type[Any]) -> None:
    text = section(SDK, f"## {kind.__name__}")
    fields = {field.name for field in dataclasses.fields(kind)}

    assert {row[0] for row in table_rows(text)} <= fields
    assert fields <= set(re.findall(r"`(\w+)`", text))


def test_every_error_is_documented_with_its_arguments() -> None:
    rows = table_rows(section(SDK, "## Errors"))
    documented = {row[0].partition("(")[0]: row[0] for row in rows}
    errors = {error.__name__: error for error in public_errors()}

    assert documented.keys() == errors.keys()
    for name, call in documented.items():
        for parameter in inspect.signature(errors[name]).parameters.values():
            shown = repr(parameter.default).replace("''", '""')
            assert f"{parameter.name}={shown}" in call


def test_everything_public_is_documented() -> None:
    for name in [*syncline.__all__, *syncline_testing.__all__]:
        assert re.search(rf"\b{name}\b", SDK), name


def public_errors() -> list[type[SyncError]]:
    values = [getattr(syncline, name) for name in syncline.__all__]
    errors = [one for one in values if inspect.isclass(one) and issubclass(one, SyncError)]
    return [error for error in errors if error is not SyncError]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert [link for link in links_of(page) if not leads_somewhere(page, link)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_has_a_path_of_somebodys_machine(page: Path) -> None:
    assert MACHINE_PATH.findall(page.read_text("utf-8")) == []


def test_the_checks_of_pages_find_what_is_wrong(tmp_path: Path) -> None:
    page, other = tmp_path / "page.md", tmp_path / "other.md"
    other.write_text("# A `Title`, and more\n## metadata.sync\n```\n# no heading\n```\n")
    page.write_text(
        "[a](other.md) [b](other.md#a-title-and-more) [c](other.md#metadatasync) [d](https://x.y/z)"
        " [e](gone.md) [f](other.md#gone) [g](#gone) [h](other.md#no-heading) `[i](code.md)`"
    )

    broken = [link for link in links_of(page) if not leads_somewhere(page, link)]

    assert broken == ["gone.md", "other.md#gone", "#gone", "other.md#no-heading"]
    assert MACHINE_PATH.search("see /home/me/x")
    assert not MACHINE_PATH.search("docs/home/x and https://x.y/home/x")


def links_of(page: Path) -> list[str]:
    return LINK.findall(CODE.sub("", page.read_text("utf-8")))


def leads_somewhere(page: Path, link: str) -> bool:
    if re.match(r"[a-z]+:", link):
        return True
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists():
        return False
    return not anchor or anchor in anchors_of(target)


def anchors_of(page: Path) -> set[str]:
    """Return the anchors that a page's headings get."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(text))
    return {heading.strip().replace(" ", "-") for heading in headings}
