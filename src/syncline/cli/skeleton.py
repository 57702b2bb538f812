"""Writes the package that `syncline connector new` starts an author with."""

import keyword
import re
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from string import Template

import typer

from syncline.cli.errors import Failure

NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
# Where each template goes; `{module}` is the connector's module.
TARGETS = {
    "pyproject.toml.txt": "pyproject.toml",
    "README.md.txt": "README.md",
    "connector.py.txt": "{module}.py",
    "test_connector.py.txt": "tests/test_{module}.py",
    "calls.json.txt": "tests/calls.json",
}


def write_package(name: str, folder: Path) -> list[str]:
    """Write the package and return its files; refuse where any of them is there already."""
    if not NAME.fullmatch(name) or len(name) > 50:
        raise typer.BadParameter(
            f"{name!r} is no name: up to 50 small letters, digits and hyphens, such as my-desk"
        )
    words = _words(name)
    texts = {
        target.format_map(words): Template(_template(source)).substitute(words)
        for source, target in TARGETS.items()
    }
    taken = [path for path in texts if (folder / path).exists()]
    if taken:
        raise Failure(f"{folder / taken[0]} is there already; nothing was written")
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        with (folder / path).open("x", encoding="utf-8") as file:  # never over another's work
            file.write(text)
    return list(texts)


def _words(name: str) -> dict[str, str]:
    class_name = "".join(part.capitalize() for part in name.split("-"))
    if keyword.iskeyword(class_name):  # None, True, False
        class_name += "Connector"
    return {
        "provider": name,
        "module": f"syncline_{name.replace('-', '_')}",
        "class_name": class_name,
        "version": version("syncline"),
    }


def _template(name: str) -> str:
    return files("syncline.cli").joinpath("templates", name).read_text("utf-8")
