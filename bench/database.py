"""One Postgres for every contender, with durability on and the same settings for all."""

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import asyncpg

from syncline.store.embedded import Binaries
from syncline.store.embedded.binaries import find_binaries
from syncline.testing.database import TemporaryServer

SERVER_SETTINGS = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",
    "min_wal_size": "4GB",  # keep what `fill_log` made, like a server that has run for long
    # There is a checkpoint before each trial; one during a trial would hit it by chance.
    "checkpoint_timeout": "1h",
    "max_connections": "200",
}
STATISTICS = "pg_stat_statements"

FILL_LOG = """
    -- Start this many files of the write-ahead log. Each gets a message, because Postgres does
    -- not switch away from an empty file.
    SELECT pg_logical_emit_message(false, 'bench', ''), pg_switch_wal()
      FROM generate_series(1, $1 / (SELECT setting::bigint / 1048576 FROM pg_settings
                                     WHERE name = 'wal_segment_size'))
"""

TOP_STATEMENTS = """
    SELECT calls, total_exec_time AS milliseconds, rows, wal_bytes::float8 AS wal_bytes,
           left(regexp_replace(regexp_replace(query, '--[^\\n]*', '', 'g'), '\\s+', ' ', 'g'), 110)
           AS statement
      FROM pg_stat_statements
     WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
       AND query !~* '^\\s*(vacuum|checkpoint|create|comment|alter|truncate|select pg_stat)'
     ORDER BY total_exec_time DESC LIMIT $1
"""


class Database:
    """The server of one run of the benchmark."""

    def __init__(self, *, profile: bool) -> None:
        self._binaries, self.has_statistics = choose_binaries()
        self._profile = profile and self.has_statistics
        self._server = TemporaryServer(
            binaries=self._binaries,
            server_settings=SERVER_SETTINGS | (_profile_settings() if self._profile else {}),
        )

    def __enter__(self) -> Self:
        self._server.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.__exit__(kind, error, traceback)

    @property
    def psql(self) -> str:
        return self._binaries.path("psql")

    @property
    def version(self) -> str:
        command = [self._binaries.path("postgres"), "--version"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def fill_log(self, megabytes: int) -> None:
        """Give the server as much write-ahead log as one that has run for a while.

        Such a server overwrites the files that it no longer needs. A new one first creates each,
        16 MB of zeros, while every commit waits: 55 ms here, about every 12 000 jobs.
        """
        with self.fresh() as url:  # this one makes a checkpoint before, and the next one after
            asyncio.run(_fetch(url, FILL_LOG, megabytes))

    @contextmanager
    def fresh(self) -> Iterator[str]:
        """Lend an empty database, after a checkpoint that writes out the last one's changes."""
        url = self._server.create_database()
        try:
            run_statements(url, "CHECKPOINT")
            if self._profile:
                run_statements(url, f"CREATE EXTENSION {STATISTICS}")
            yield url
        finally:
            self._server.drop_database(url)

    def top_statements(self, url: str, limit: int = 12) -> list[dict[str, Any]]:
        """Return where the server spent its time, the costliest first; empty if not profiling."""
        if not self._profile:
            return []
        return [dict(row) for row in asyncio.run(_fetch(url, TOP_STATEMENTS, limit))]


def choose_binaries() -> tuple[Binaries, bool]:
    """Return a Postgres, preferably with pg_stat_statements, and whether it has it."""
    found = find_binaries()
    for binaries in found:
        if _has_statistics(binaries):
            return binaries, True
    return found[0], False


def run_statements(url: str, *statements: str) -> None:
    for statement in statements:
        asyncio.run(_fetch(url, statement))


async def _fetch(url: str, statement: str, *arguments: object) -> list[Any]:
    session = await asyncpg.connect(url, command_timeout=600)
    try:
        rows: list[Any] = await session.fetch(statement, *arguments)
        return rows
    finally:
        await session.close()


def _has_statistics(binaries: Binaries) -> bool:
    asked = [binaries.path("pg_config"), "--sharedir"]
    try:
        answer = subprocess.run(asked, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return False
    return (Path(answer.stdout.strip()) / "extension" / f"{STATISTICS}.control").exists()


def _profile_settings() -> dict[str, str]:
    return {"shared_preload_libraries": STATISTICS, "track_io_timing": "on"}
