"""The pages that link to others: the index, the architecture and the changelog."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "syncline"
MODULE = re.compile(r"`(?:src/syncline/)?((?:[a-z_]+/)*[a-z_]+\.(?:py|html|css))(?:::(\w+))?`")
KINDS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
PAGES_WITH_MODULES = [
    ROOT / "ARCHITECTURE.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs" / "decisions").glob("*.md")),
]


def test_the_index_links_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text("utf-8")
    linked = {
        (ROOT / "docs" / link).resolve() for link in re.findall(r"\]\(([^)#]+)[^)]*\)", index)
    }

    pages = {page.resolve() for page in ROOT.glob("docs/**/*.md")} | set(ROOT.glob("*.md"))
    assert pages - linked == {(ROOT / "docs" / "README.md").resolve()}


@pytest.mark.parametrize("page", PAGES_WITH_MODULES, ids=lambda page: page.name)
def test_every_module_it_names_exists(page: Path) -> None:
    files = [
        path.relative_to(ROOT).as_posix()
        for folder in ("src", "tests", "checks")
        for path in (ROOT / folder).rglob("*.*")
    ]

    named = MODULE.findall(page.read_text("utf-8"))

    missing = [
        name for name, _ in named if not any(f"/{file}".endswith(f"/{name}") for file in files)
    ]
    assert missing == []


def test_every_folder_of_the_tree_is_in_the_architecture() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    tree = text.partition("## The tree")[2].partition("\n## ")[0]
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    rooms = {
        path.parent.name
        for room in ("engine", "store")
        for path in (SOURCE / room).glob("*/__init__.py")
    }

    assert {name for name in packages | rooms if f"{name}/" not in tree} == set()


def test_the_architecture_reads_in_one_sitting() -> None:
    assert len((ROOT / "ARCHITECTURE.md").read_text("utf-8").splitlines()) <= 200


def test_the_changelog_keeps_its_form() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    versions = re.split(r"^## ", text, flags=re.MULTILINE)[1:]

    titles = [one.split("\n")[0] for one in versions]
    assert (titles[0], titles[-1]) == ("[Unreleased]", "[0.1.0] - 2026-11-16")
    assert version in versions[0] or f"[{version}]" in titles[1]
    assert "6e624cf" in versions[-1]
    for one in versions:
        kinds = re.findall(r"^### (.+)$", one, re.MULTILINE)
        assert kinds == [kind for kind in KINDS if kind in kinds]
