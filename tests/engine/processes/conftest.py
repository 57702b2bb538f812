"""Processes for each test, ended after it whatever happened."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.processes import Fleet


@pytest.fixture
def fleet(database_url: str, tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(database_url, tmp_path)
    yield fleet
    fleet.stop()
    print(fleet.logs())  # shown when the test has failed
