"""The git connector against slow servers: a fetch that outlasts a run does not start over."""

import asyncio
import os
import shutil
import time
import tracemalloc
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, cast

import pytest

from support.repositories import GitServer, Repo, connect, first_page, serve, subjects
from syncline.children.limits import ChildLimits
from syncline.connectors.git import GitCommits
from syncline.connectors.git.commits import instant
from syncline.connectors.git.connector import _move_tips
from syncline.connectors.git.mirror import Pace
from syncline.connectors.git.repository import MAX_PRINTED, Survey
from syncline.errors import SyncError
from syncline.model import Connection, Signal, SyncResult
from syncline.testing.trial import prepare_trial

pytestmark = [
    pytest.mark.skipif(shutil.which("git") is None, reason="the git program is missing"),
    pytest.mark.security,
]
CHUNK = 4_096


def drip(handler: BaseHTTPRequestHandler, content: bytes, bytes_per_second: int) -> None:
    for start in range(0, len(content), CHUNK):
        handler.wfile.write(content[start : start + CHUNK])
        handler.wfile.flush()
        time.sleep(CHUNK / bytes_per_second)


class SlowServer(GitServer):
    """A slow git server."""

    bytes_per_second = 60_000
    sent = 0

    def send_content(self, content: bytes) -> None:
        type(self).sent += len(content)
        drip(self, content, self.bytes_per_second)


class SlowFiles(BaseHTTPRequestHandler):
    """A slow server of plain files that supports ranges."""

    root: Path
    bytes_per_second = 60_000
    ranges: list[int]

    def do_GET(self) -> None:
        file = self.root / self.path.partition("?")[0].lstrip("/")
        if not file.is_file():
            self.send_error(404)
            return
        content = file.read_bytes()
        asked = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-")
        start = int(asked)
        if start:
            self.ranges.append(start)
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        drip(self, content[start:], self.bytes_per_second)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def large_history(repo: Repo, commits: int) -> None:
    """Fill a repository with commits of two kilobytes that cannot be compressed."""
    lines = []
    for number in range(commits):
        text = f"change {number}\n\n{os.urandom(1500).hex()}\n".encode()
        lines.append(b"commit refs/heads/main\n")
        lines.append(b"committer Ada <ada@example.org> %d +0000\n" % (1_700_000_000 + number))
        lines.append(b"data %d\n%s\n" % (len(text), text))
    repo.git("fast-import", "--quiet", stdin=b"".join(lines))


async def runs_until_done(
    connector: GitCommits, connection: Connection, *, run_seconds: float, most: int
) -> tuple[SyncResult, int, int]:
    """Run as an executor does, with a time limit; return the first page, all runs and cut ones."""
    cursor: Any = None
    cut = 0
    for count in range(1, most + 1):
        try:
            async with asyncio.timeout(run_seconds):
                page = await first_page(connector, connection, cursor)
        except TimeoutError:
            cut += 1
            continue
        except SyncError:
            continue
        if page.signals:
            return page, count, cut
        cursor = page.next_cursor
    raise AssertionError(f"nothing arrived in {most} runs, of which {cut} were cut off")


def hurried(tmp_path: Path, run_seconds: int) -> GitCommits:
    connector = GitCommits(tmp_path / "cache", Pace(slice_commits=256))
    connector.child_limits = ChildLimits(cpu_seconds=run_seconds)
    return cast(GitCommits, prepare_trial(connector))


async def test_a_history_that_outlasts_a_run_arrives_in_smaller_slices(
    repo: Repo, tmp_path: Path
) -> None:
    """Its first slice alone takes longer than a run."""
    large_history(repo, 300)
    size = sum(path.stat().st_size for path in repo.folder.rglob("*.pack"))
    handler: Any = type("Handler", (SlowServer,), {"root": tmp_path})
    run_seconds = 5
    assert size / SlowServer.bytes_per_second > 1.5 * run_seconds

    with serve(handler) as address:
        connection = connect(f"http://{address}/repo/.git", page_size=1000)
        page, runs, cut = await runs_until_done(
            hurried(tmp_path, run_seconds), connection, run_seconds=run_seconds, most=30
        )

    assert subjects(list(page.signals)) == [f"change {number}" for number in range(300)]
    assert 1 <= cut < runs
    assert handler.sent < 3 * size  # only interrupted slices are sent again


async def test_a_server_of_plain_files_is_resumed_where_it_was_cut_off(
    repo: Repo, tmp_path: Path
) -> None:
    large_history(repo, 300)
    site = tmp_path / "site.git"
    repo.git("clone", "--quiet", "--bare", str(repo.folder), str(site))
    repo.git(f"--git-dir={site}", "repack", "-adq")
    repo.git(f"--git-dir={site}", "update-server-info")
    ranges: list[int] = []
    handler = type("Handler", (SlowFiles,), {"root": tmp_path, "ranges": ranges})

    with serve(handler) as address:
        connection = connect(f"http://{address}/site.git", page_size=1000)
        page, runs, cut = await runs_until_done(
            hurried(tmp_path, 5), connection, run_seconds=5, most=30
        )

    assert len(list(page.signals)) == 300
    assert 1 <= cut < runs
    assert ranges == sorted(ranges)
    assert ranges[0] > 0


def test_a_million_names_do_not_hold_the_loop() -> None:
    shas = [f"{number:040x}" for number in range(1_000_000)]
    lines = [*(f"-{sha}" for sha in shas[:3]), *shas[3:], ""]
    printed = "\n".join(lines).encode()
    began = time.process_time()

    survey = Survey(printed)
    found = (len(survey), survey.names[:82].decode().split(), survey.boundary)

    assert time.process_time() - began < 0.25
    assert found == (999_997, shas[3:5], set(shas[:3]))


def test_the_tips_of_many_branches_are_found_in_linear_time() -> None:
    """A hostile history may have any number of root commits."""
    page = [
        Signal("commit", instant("0"), {"sha": f"{number:040x}", "parents": []})
        for number in range(50_000)
    ]
    tips: set[str] = set()
    began = time.process_time()

    _move_tips(tips, page)

    assert len(tips) == 50_000
    assert time.process_time() - began < 0.5


UNUSUAL, USUAL = b"author A <a@b> yesterday\n", b"author A <a@b> 1700000000 +0000\n"
COMMITTER = b"committer A <a@b> 1700000000 +0000\n"


@pytest.mark.parametrize(
    ("author", "subject"), [(USUAL, "x" * 1_000), (UNUSUAL, "")], ids=["parsed", "left to git"]
)
async def test_a_very_large_commit_needs_little_memory(
    author: bytes, subject: str, repo: Repo, tmp_path: Path
) -> None:
    """Git prints an unusual one, up to a limit; beyond that, it comes without its text."""
    small = repo.raw_commit(USUAL + COMMITTER, b"small")
    repo.raw_commit(author + COMMITTER, b"x" * (MAX_PRINTED + 1), parent=small)
    connector = hurried(tmp_path, 60)
    tracemalloc.start()
    try:
        page = await first_page(connector, connect(repo.folder))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert subjects(list(page.signals)) == ["small", subject]
    assert page.next_cursor == {"seen": [repo.git("rev-parse", "main")]}
    assert peak < (5_000_000 if subject else 2.5 * MAX_PRINTED)
