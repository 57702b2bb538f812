from collections.abc import Iterator
from pathlib import Path

import pytest

from support.commands import CommandLine


@pytest.fixture
def syncline(database_url: str, tmp_path: Path) -> Iterator[CommandLine]:
    """The command line, on a database without rows."""
    syncline = CommandLine(database_url, tmp_path)
    yield syncline
    syncline.close()
