from pathlib import Path

import pytest

from support.commands import CommandLine


@pytest.fixture
def syncline(database_url: str, tmp_path: Path) -> CommandLine:
    """The command line, on a database without rows."""
    return CommandLine(database_url, tmp_path)
