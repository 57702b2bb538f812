"""A fake tap as a program, and a source for its records."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support import fake_tap
from support.processes import Fleet
from syncline.children.sandbox import why_unavailable
from syncline.connectors.foreign.environments import InstalledProgram
from syncline.connectors.foreign.singer import SingerTap

SourceWriter = Callable[[Iterable[dict[str, Any]]], Path]


@pytest.fixture
def installed(tmp_path: Path) -> InstalledProgram:
    """The fake tap, as if it had been installed."""
    return install_fake(tmp_path)


def install_fake(folder: Path) -> InstalledProgram:
    program = folder / "tap-fake"
    body = Path(fake_tap.__file__).read_text()
    program.write_text(f"#!{sys.executable}\n{body}")
    program.chmod(0o755)
    folder.chmod(0o755)  # if root starts the sandbox, the tap runs as another user
    return InstalledProgram(
        name="tap-fake",
        requirement="tap-fake",
        package="tap-fake",
        version="1.0",
        executable=str(program),
        environment=str(folder),
        about=fake_tap.ABOUT,
    )


@pytest.fixture
def tap(installed: InstalledProgram) -> SingerTap:
    """The fake tap as an operator runs it without a sandbox, so that it can leave notes."""
    tap = SingerTap(installed)
    tap.sandboxed = False
    return tap


@pytest.fixture
def sandbox() -> None:
    """Skip the test if this host cannot run sandboxes."""
    reason = why_unavailable()
    if reason is not None:
        pytest.skip(f"this host cannot run sandboxes: {reason}")


@pytest.fixture
def sandboxed_tap(installed: InstalledProgram, sandbox: None) -> SingerTap:
    return SingerTap(installed)


@pytest.fixture
def fleet(database_url: str, tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(database_url, tmp_path)
    yield fleet
    fleet.stop()
    print(fleet.logs())  # shown when the test has failed


@pytest.fixture
def write_source(tmp_path: Path) -> SourceWriter:
    def write(records: Iterable[dict[str, Any]]) -> Path:
        path = tmp_path / "source.jsonl"
        path.write_text("".join(json.dumps(one) + "\n" for one in records))
        return path

    return write
