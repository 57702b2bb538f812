"""The README's connector and application run as they are."""

import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from textwrap import indent

import pytest

from support.commands import CommandLine, Process

README = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
DATABASE = "postgresql://app@db/app"
PROVIDER = '''
import asyncio, os
from types import SimpleNamespace

async def fetch(url, after):
    """The ticket service that the README leaves to its reader; its ids are numbers."""
    tickets = [{"id": n, "at": 1735689600 + n} for n in range(after or 0, 3)]
    return SimpleNamespace(status=200, tickets=tickets, last_id=3, has_more=False)
'''


@pytest.fixture
def syncline(database_url: str, tmp_path: Path) -> Iterator[CommandLine]:
    syncline = CommandLine(database_url, tmp_path)
    yield syncline
    syncline.close()


def application() -> str:
    """Return the README's connector and application as one program."""
    blocks = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    connector, application = blocks[:2]
    assert application.count(DATABASE) == 1
    main = application.replace(f'"{DATABASE}"', 'os.environ["SYNCLINE_DATABASE_URL"]')
    return (
        f"{PROVIDER}\n{connector}\nasync def main():\n{indent(main, '    ')}\nasyncio.run(main())"
    )


@pytest.mark.process
def test_the_application_starts_a_first_and_a_second_time(
    syncline: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "application.py").write_text(application())

    for start in (1, 2):
        process = syncline.start_program("application.py")
        until_succeeded(syncline, process, start)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=20)
        assert process.returncode == 0, errors

    [[connections]] = syncline.sql("SELECT count(*) FROM syncline.connections")
    keys = syncline.sql("SELECT dedupe_key FROM syncline.signals ORDER BY 1")
    assert connections == 1
    assert [key for (key,) in keys] == ["0", "1", "2"]


def until_succeeded(syncline: CommandLine, process: Process, jobs: int) -> None:
    """Wait until this many jobs have succeeded."""
    query = "SELECT count(*) FROM syncline.sync_jobs WHERE status = 'succeeded'"
    for _ in range(400):
        if syncline.sql(query)[0][0] >= jobs:
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    raise AssertionError("the application synced nothing")
