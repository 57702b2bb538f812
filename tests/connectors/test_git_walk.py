"""The git connector: one walk brings all pages, and a run can be interrupted between any two."""

import asyncio
import os
import shutil
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from support.repositories import Repo, connect, first_page, follow, pages, subjects
from support.world import open_world
from syncline.connectors.git import GitCommits
from syncline.connectors.git.program import OutOfTime
from syncline.errors import Transient
from syncline.model import Connection, Signal

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="the git program is missing")
GIT = shutil.which("git")
STREAM = "cat-file --batch --buffer"


class Wrapper:
    """A `git` on the PATH that notes its arguments, and may do something else than stream."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._calls = folder / "calls"
        folder.mkdir()
        self.stream_by('exec "$git" "$@"')

    def stream_by(self, script: str) -> None:
        """Run this script in place of the process that prints the commits of all pages."""
        program = self.folder / "git"
        program.write_text(
            f'#!/bin/sh\ngit={GIT}\necho "$*" >>{self._calls}\n'
            f'[ "$*" = "{STREAM}" ] || exec "$git" "$@"\n{script}\n'
        )
        program.chmod(0o755)

    def calls(self) -> list[str]:
        return self._calls.read_text().splitlines()


@pytest.fixture
def wrapper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repo: Repo) -> Wrapper:
    wrapper = Wrapper(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{wrapper.folder}{os.pathsep}{os.environ['PATH']}")
    return wrapper


def branched(repo: Repo, commits: int) -> list[str]:
    """Fill a repository with a branch and a merge in every ten commits; return their names."""
    stream, tip, side = [], 0, 0
    for mark in range(1, commits + 1):
        is_branch = mark % 10 == 5
        text = f"change {mark}"
        stream.append(
            f"commit refs/heads/{'side' if is_branch else 'main'}\nmark :{mark}\n"
            f"committer G <g@x> {repo.clock + mark} +0000\ndata {len(text)}\n{text}\n"
            + (f"from :{tip}\n" if tip else "")
            + (f"merge :{side}\n" if mark % 10 == 9 else "")
        )
        tip, side = (tip, mark) if is_branch else (mark, side)
    repo.git("fast-import", "--quiet", stdin="".join(stream).encode())
    return repo.git("rev-list", "main").split()


async def test_a_first_sync_walks_once_and_reads_from_one_process(
    repo: Repo, connector: GitCommits, wrapper: Wrapper
) -> None:
    repo.changes(95)

    found = [page async for page in pages(connector, connect(repo.folder, page_size=10))]

    assert [len(list(page.signals)) for page in found] == [10] * 9 + [5]
    assert [page.has_more for page in found] == [True] * 9 + [False]
    calls = wrapper.calls()
    assert sum(call.startswith("rev-list") for call in calls) == 1
    assert calls.count(STREAM) == 1
    assert len(calls) <= 6


async def test_pages_have_a_thousand_commits_by_default(repo: Repo, connector: GitCommits) -> None:
    repo.changes(2_100)

    found = [page async for page in pages(connector, connect(repo.folder))]

    assert [len(list(page.signals)) for page in found] == [1_000, 1_000, 100]


@pytest.mark.parametrize("before", [1, 2, 5])
async def test_a_run_interrupted_in_mid_walk_continues_with_each_commit_once(
    before: int, repo: Repo, connector: GitCommits
) -> None:
    names = branched(repo, 60)
    connection = connect(repo.folder, page_size=9)
    signals: list[Signal] = []
    cursor: Any = None
    async with aclosing(connector.sync(connection, cursor)) as run:
        for _ in range(before):
            page = await anext(run)
            signals += page.signals
            cursor = page.next_cursor
    rest, cursor = await follow(connector, connection, cursor)

    keys = [str(signal.dedupe_key) for signal in [*signals, *rest]]
    assert len(signals) == 9 * before
    assert sorted(keys) == sorted(names)
    assert cursor == {"seen": names[:1]}


async def test_a_cursor_in_mid_walk_from_the_version_before_is_continued(
    repo: Repo, connector: GitCommits
) -> None:
    repo.changes(7)
    names = repo.git("rev-list", "--reverse", "main").split()
    cursor = {"seen": [names[2]], "until": names[5]}

    signals, cursor = await follow(connector, connect(repo.folder), cursor)
    later, cursor = await follow(connector, connect(repo.folder), cursor)

    assert subjects(signals) == ["change 3", "change 4", "change 5"]
    assert subjects(later) == ["change 6"]
    assert cursor == {"seen": [names[6]]}


async def test_commits_that_arrive_during_a_run_come_with_the_next_one(
    repo: Repo, connector: GitCommits
) -> None:
    repo.changes(4)
    repo.git("checkout", "--quiet", "main")
    connection = connect(repo.folder, page_size=3)
    signals: list[Signal] = []
    cursor: Any = None
    async with aclosing(connector.sync(connection, None)) as run:
        async for page in run:
            signals += page.signals
            cursor = page.next_cursor
            repo.commit(f"after {len(signals)}")

    later, _ = await follow(connector, connection, cursor)

    assert subjects(signals) == [f"change {number}" for number in range(4)]
    assert subjects(later) == ["after 3", "after 4"]


async def test_closing_a_run_between_pages_ends_git_and_its_children(
    repo: Repo, connector: GitCommits, wrapper: Wrapper, tmp_path: Path
) -> None:
    """So it is when a worker stops, a lease is lost, or a person cancels the job."""
    alive = tmp_path / "alive"
    os.mkfifo(alive)
    repo.changes(20)
    wrapper.stream_by(f'exec 3>{alive}\nsleep 60 &\n"$git" "$@"\nwait')
    run = connector.sync(connect(repo.folder, page_size=5), None)
    opening = asyncio.create_task(asyncio.to_thread(alive.open))
    page = await anext(run)

    with await opening as witness:
        await run.aclose()
        # The pipe ends only when the last process that holds it is gone.
        assert await asyncio.to_thread(witness.read) == ""
    assert len(list(page.signals)) == 5


async def test_the_private_folder_goes_with_a_closed_run(
    repo: Repo, connector: GitCommits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = tmp_path / "private"
    private.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(private))
    repo.changes(20)
    run = connector.sync(connect(repo.folder, page_size=5), None)
    await anext(run)
    during = [*private.iterdir()]

    await run.aclose()

    assert during
    assert [*private.iterdir()] == []


async def test_a_git_out_of_processor_time_leaves_the_rest_to_the_next_run(
    repo: Repo, connector: GitCommits, wrapper: Wrapper
) -> None:
    """The limit counts for the process, and so for all pages that it prints."""
    repo.changes(30)
    connection = connect(repo.folder, page_size=10)
    wrapper.stream_by('head -n 15 | "$git" "$@"\nkill -s XCPU $$')

    found = [page async for page in connector.sync(connection, None)]
    wrapper.stream_by('exec "$git" "$@"')
    rest, _ = await follow(connector, connection, found[-1].next_cursor)

    assert [(len(list(page.signals)), page.has_more) for page in found] == [(10, True), (5, True)]
    assert subjects(rest) == [f"change {number}" for number in range(15, 30)]


async def test_a_git_that_has_no_time_for_a_single_commit_is_an_error(
    repo: Repo, connector: GitCommits, wrapper: Wrapper
) -> None:
    repo.changes(3)
    wrapper.stream_by("kill -s XCPU $$")

    with pytest.raises(OutOfTime, match="processor time"):
        await first_page(connector, connect(repo.folder))


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ('sed 1s/./f/g | "$git" "$@"', "has no commit ffff"),
        ('head -n 2 | "$git" "$@"', "fewer commits"),
        ("echo fatal: out of order >&2; exit 128", "out of order"),
    ],
    ids=["a missing commit", "too few commits", "a failure"],
)
async def test_a_stream_that_breaks_off_is_an_error(
    script: str, said: str, repo: Repo, connector: GitCommits, wrapper: Wrapper
) -> None:
    repo.changes(3)
    wrapper.stream_by(script)

    with pytest.raises(Transient, match=said):
        await first_page(connector, connect(repo.folder))


async def test_a_shallow_commit_has_no_parents(
    repo: Repo, connector: GitCommits, tmp_path: Path
) -> None:
    repo.changes(3)
    shallow = tmp_path / "shallow"
    repo.git("clone", "--quiet", "--depth=2", f"file://{repo.folder}", str(shallow))

    signals, _ = await follow(connector, connect(shallow))

    assert [signal.payload["parents"] for signal in signals] == [[], [signals[0].dedupe_key]]


async def test_an_engine_keeps_each_page_and_continues_after_a_crash_of_git(
    repo: Repo, database_url: str, tmp_path: Path, wrapper: Wrapper
) -> None:
    names = branched(repo, 60)
    wrapper.stream_by('head -n 25 | "$git" "$@"\nkill -s KILL $$')
    git = GitCommits(local_roots=[tmp_path])
    async with open_world(database_url, connectors=[git]) as world:
        connection: Connection = await world.engine.connections.create(
            tenant_id="acme",
            provider_slug="git",
            external_id="repo",
            config={"url": str(repo.folder), "page_size": 10},
        )
        await world.engine.trigger(connection.id)
        await world.engine.run_due()
        kept = await world.signals(connection)
        job = await world.pending(connection)
        wrapper.stream_by('exec "$git" "$@"')
        world.clock.advance(3_600)
        await world.engine.run_due()
        stored = await world.signals(connection)
        sent = world.metric("sync_executor_signals_stored_total", provider_slug="git")
        assert await world.engine.verify() == []

    assert (len(kept), job.status, job.error["class"]) == (20, "queued", "Transient")
    assert job.cursor["until"] == names[0]
    assert sorted(signal.payload["sha"] for signal in stored) == sorted(names)
    assert sent == len(names)
