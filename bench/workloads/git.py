"""The first sync of a git repository through an engine, beside `git log` of the same commits."""

import asyncio
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.measure import POLL_SECONDS, Figures, cpu_seconds
from bench.workloads.case import PENDING, Case, begin_measuring, running
from syncline import Engine
from syncline.connectors.git import GitCommits

BY_GIT_LOG = "÷ git log"
LOGS = 3  # before the sync, and as many after it
BEGAN_AT = 1_200_000_000  # the date of the first commit
FORMAT = "--format=%H%x00%P%x00%ct%x00%at%x00%an%x00%ae%x00%s%x00%b%x00"
PLAIN = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
WORDS = (
    "export",
    "button",
    "page",
    "reload",
    "file",
    "cursor",
    "worker",
    "lease",
    "signal",
    "retry",
)


async def first_sync(case: Case) -> Figures:
    """Time a connection's first run until every commit is stored, and `git log` around it."""
    commits = case.size("commits")
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder, "repository.git")
        make_repository(repository, commits)
        connector = GitCommits(local_roots=[Path(folder)])
        async with (
            case.engine(connector, concurrency=50) as engine,
            case.session() as session,
        ):
            connection = await engine.connections.create(
                tenant_id="bench",
                provider_slug="git",
                external_id="repository",
                config={"url": str(repository)},
            )
            logged = [time_log(repository) for _ in range(LOGS)]
            await begin_measuring(session)
            figures = await time_sync(engine, session, connection.id)
            logged += [time_log(repository) for _ in range(LOGS)]
            stored = await session.fetchval("SELECT count(*) FROM syncline.signals")
            assert stored == commits, stored
            assert await engine.verify() == []
    log = sorted(logged)[LOGS]
    sync = figures["first sync, s"]
    compared = {BY_GIT_LOG: sync / log, "git log, s": log, "commits/s": commits / sync}
    return compared | figures


async def time_sync(engine: Engine, session: Any, connection_id: Any) -> Figures:
    """Trigger a run; return the time until nothing is pending, and this process's own."""
    async with running(engine, scheduler=False):
        began = ended = time.perf_counter()
        cpu = cpu_seconds()
        await engine.trigger(connection_id)
        while await session.fetchval(PENDING):
            await asyncio.sleep(POLL_SECONDS)
            ended = time.perf_counter()
        return {"first sync, s": ended - began, "client CPU, s": cpu_seconds() - cpu}


def time_log(repository: Path) -> float:
    """Return the seconds that `git log` needs for the fields that a commit's signal has."""
    with tempfile.TemporaryFile(dir=repository) as output:
        began = time.perf_counter()
        _git(repository, "log", FORMAT, stdout=output)
        return time.perf_counter() - began


def make_repository(folder: Path, commits: int) -> None:
    """Make the same repository each time: a main line, and a short branch every ten commits."""
    _git(folder, "init", "--quiet", "--bare", "--initial-branch=main", str(folder))
    _git(folder, "fast-import", "--quiet", input=b"".join(_commits(commits)))


def _commits(count: int) -> Iterator[bytes]:
    tip = side = 0
    for mark in range(1, count + 1):
        is_branch, is_merge = mark % 10 == 5, mark % 10 == 9 and side > 0
        yield _commit(mark, "side" if is_branch else "main")
        yield b"from :%d\n" % tip if tip else b""
        yield b"merge :%d\n" % side if is_merge else b""
        if is_branch and mark < count - 10:
            side = mark
        else:
            tip = mark


def _commit(mark: int, branch: str) -> bytes:
    words = [WORDS[(mark * factor) % len(WORDS)] for factor in (1, 5, 7, 11)]
    body = f"The {' '.join(words)} of {mark} " * (mark % 7)
    message = f"Change the {' and the '.join(words)}\n\n{body}\n".encode()
    who = f"Author {mark % 97} <author-{mark % 97}@example.org> {BEGAN_AT + 600 * mark} +0000"
    return (
        f"commit refs/heads/{branch}\nmark :{mark}\nauthor {who}\ncommitter {who}\n"
        f"data {len(message)}\n"
    ).encode() + message


def _git(folder: Path, *arguments: str, **options: Any) -> None:
    subprocess.run(
        ["git", f"--git-dir={folder}", *arguments], env=os.environ | PLAIN, check=True, **options
    )
