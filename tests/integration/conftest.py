"""A scene for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.scene import Scene
from support.processes import Fleet


@pytest.fixture
def scene(database_url: str, tmp_path: Path) -> Iterator[Scene]:
    fleet = Fleet(database_url, tmp_path)
    yield Scene(fleet)
    fleet.stop()
    print(fleet.logs())  # shown when the test has failed
