"""The git connector against real repositories, made with the git program."""

import asyncio
import json
import os
import random
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import uuid4

import pytest

from syncline.connectors.git import MAX_TIPS, GitCommits
from syncline.errors import Permanent, RateLimited, SyncError, Transient, Unauthorized
from syncline.model import Connection, Signal, SyncResult

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="the git program is missing")

IDENTITY = {
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Grace",
    "GIT_COMMITTER_EMAIL": "grace@example.org",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
}
NOON = int(datetime(2024, 5, 1, 12, tzinfo=UTC).timestamp())


class Repo:
    """A repository whose every commit has a date the test chose."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.clock = NOON
        folder.mkdir()
        self.git("init", "--quiet", "--initial-branch=main", *options)

    def git(self, *arguments: str, at: int = NOON, stdin: bytes = b"") -> str:
        dates = dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), f"{at} +0000")
        done = subprocess.run(
            ["git", "-C", self.folder, *arguments],
            env=os.environ | IDENTITY | dates,
            input=stdin,
            capture_output=True,
            check=True,
            timeout=60,
        )
        return done.stdout.decode().strip()

    def commit(self, subject: str, *, at: int | None = None) -> str:
        self.clock += 60
        when = self.clock if at is None else at
        self.git("commit", "--quiet", "--allow-empty", "-m", subject, at=when)
        return self.git("rev-parse", "HEAD")

    def raw_commit(self, headers: bytes, message: bytes) -> str:
        tree = self.git("mktree").encode()
        content = b"tree %s\n%s\n%s" % (tree, headers, message)
        sha = self.git("hash-object", "-t", "commit", "-w", "--stdin", "--literally", stdin=content)
        self.git("update-ref", "refs/heads/main", sha)
        return sha

    def forget(self, *refs: str) -> None:
        """Drop these refs and every commit that only they led to."""
        for ref in refs:
            self.git("update-ref", "-d", ref)
        self.git("reflog", "expire", "--expire=now", "--all")
        self.git("gc", "--quiet", "--prune=now")


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path / "repo")


@pytest.fixture
def connector(tmp_path: Path) -> GitCommits:
    return GitCommits(cache_folder=tmp_path / "cache")


def connect(url: object, **config: object) -> Connection:
    settings = {"url": str(url) if isinstance(url, Path) else url, **config}
    return Connection(uuid4(), "acme", "git", "repo", "active", config=settings, metadata={})


async def pages(
    connector: GitCommits, connection: Connection, cursor: Any = None
) -> AsyncIterator[SyncResult]:
    """Follow the pages to the end, checking what every page of any connector must keep."""
    keys: set[str | None] = set()
    while True:
        page = await connector.sync(connection, cursor)
        again = await connector.sync(connection, cursor)
        assert again == page
        assert json.loads(json.dumps(page.next_cursor)) == page.next_cursor
        for item in page.signals:
            assert item.occurred_at.tzinfo is not None
            assert item.dedupe_key not in keys
            assert len(item.dedupe_key or "") <= 255
            json.dumps(item.payload).encode()
            keys.add(item.dedupe_key)
        yield page
        if not page.has_more:
            return
        assert page.next_cursor != cursor
        cursor = page.next_cursor


async def follow(
    connector: GitCommits, connection: Connection, cursor: Any = None
) -> tuple[list[Signal], Any]:
    """Return every signal up to the last page, and the cursor left behind."""
    signals: list[Signal] = []
    async for page in pages(connector, connection, cursor):
        signals += page.signals
        cursor = page.next_cursor or cursor
    return signals, cursor


def subjects(signals: list[Signal]) -> list[str]:
    return [item.payload["subject"] for item in signals if item.kind == "commit"]


def kinds(signals: list[Signal]) -> list[str]:
    return [item.kind for item in signals]


async def test_pages_run_from_the_oldest_commit_to_the_newest(
    repo: Repo, connector: GitCommits
) -> None:
    for number in range(7):
        repo.commit(f"change {number}")
    connection = connect(repo.folder, page_size=3)

    found = [page async for page in pages(connector, connection)]

    assert [len(list(page.signals)) for page in found] == [3, 3, 1]
    signals = [item for page in found for item in page.signals]
    assert subjects(signals) == [f"change {number}" for number in range(7)]
    assert found[-1].next_cursor == {"seen": [repo.git("rev-parse", "HEAD")]}


async def test_a_commit_becomes_a_signal(repo: Repo, connector: GitCommits) -> None:
    first = repo.commit("first")
    sha = repo.commit("Fix the lamp\n\nIt flickered.\n\nSee also: the switch.", at=NOON)

    signals, _ = await follow(connector, connect(repo.folder))

    assert signals[1] == Signal(
        kind="commit",
        occurred_at=datetime(2024, 5, 1, 12, tzinfo=UTC),
        payload={
            "sha": sha,
            "parents": [first],
            "author": "Ada",
            "email": "ada@example.org",
            "authored_at": "2024-05-01T12:00:00+00:00",
            "subject": "Fix the lamp",
            "body": "It flickered.\n\nSee also: the switch.",
        },
        dedupe_key=sha,
    )


async def test_without_new_commits_the_page_is_empty(repo: Repo, connector: GitCommits) -> None:
    repo.commit("only")
    connection = connect(repo.folder)
    _, cursor = await follow(connector, connection)

    page = await connector.sync(connection, cursor)

    assert page == SyncResult(signals=(), next_cursor=cursor, has_more=False)


async def test_an_empty_repository_has_an_empty_page(repo: Repo, connector: GitCommits) -> None:
    for url in (repo.folder, f"file://{repo.folder}"):
        page = await connector.sync(connect(url), None)
        assert page == SyncResult()


async def test_a_merge_brings_in_commits_older_than_the_last_one_seen(
    repo: Repo, connector: GitCommits
) -> None:
    repo.commit("root")
    repo.git("checkout", "--quiet", "-b", "side")
    repo.commit("ancient 1", at=NOON - 90_000)
    repo.commit("ancient 2", at=NOON - 80_000)
    repo.git("checkout", "--quiet", "main")
    repo.commit("recent")
    connection = connect(repo.folder, page_size=2)
    _, cursor = await follow(connector, connection)

    repo.git("merge", "--quiet", "-m", "merge side", "side", at=repo.clock + 60)
    signals, _ = await follow(connector, connection, cursor)

    assert subjects(signals) == ["ancient 1", "ancient 2", "merge side"]


async def test_nothing_is_lost_when_the_branch_moves_between_pages(
    repo: Repo, connector: GitCommits
) -> None:
    for number in range(5):
        repo.commit(f"main {number}")
    connection = connect(repo.folder, page_size=2)
    first = await connector.sync(connection, None)

    repo.git("checkout", "--quiet", "-b", "side", "HEAD~4")
    repo.commit("side", at=NOON - 90_000)
    repo.git("checkout", "--quiet", "main")
    repo.git("merge", "--quiet", "-m", "merge side", "side", at=repo.clock + 60)
    rest, cursor = await follow(connector, connection, first.next_cursor)
    later, _ = await follow(connector, connection, cursor)

    signals = [*first.signals, *rest, *later]
    assert subjects(signals) == [*(f"main {number}" for number in range(5)), "side", "merge side"]


@pytest.mark.parametrize("seed", range(4))
async def test_any_shape_of_history_arrives_once_and_parents_first(
    seed: int, repo: Repo, connector: GitCommits
) -> None:
    chance = random.Random(seed)
    connection = connect(repo.folder, page_size=chance.randint(1, 7))
    tree = repo.git("mktree")
    commits: list[str] = []
    signals: list[Signal] = []
    cursor: Any = None
    for number in range(40):
        chosen = chance.sample(commits, min(len(commits), chance.choice([0, 1, 1, 1, 2, 3])))
        parents = [option for parent in chosen for option in ("-p", parent)]
        when = NOON + chance.randint(-90_000, 90_000)
        commits.append(repo.git("commit-tree", *parents, "-m", f"c{number}", tree, at=when))
        if number % 9 == 0:
            tips = [option for parent in commits for option in ("-p", parent)]
            head = repo.git("commit-tree", *tips, "-m", f"h{number}", tree, at=when)
            commits.append(head)
            repo.git("update-ref", "refs/heads/main", head)
            page = await connector.sync(connection, cursor)  # pages go on while the branch moves
            signals += page.signals
            cursor = page.next_cursor

    while cursor != {"seen": [repo.git("rev-parse", "main")]}:
        rest, cursor = await follow(connector, connection, cursor)
        signals += rest

    order = [item.dedupe_key for item in signals]
    assert set(kinds(signals)) == {"commit"}
    assert sorted(map(str, order)) == sorted(repo.git("rev-list", "main").split())
    for item in signals:
        parents = item.payload["parents"]
        assert all(order.index(parent) < order.index(item.dedupe_key) for parent in parents)


async def test_a_page_grows_until_the_cursor_is_small_enough(
    repo: Repo, connector: GitCommits
) -> None:
    tree, root = repo.git("mktree"), repo.commit("root")
    wide = MAX_TIPS + 100
    stream = "".join(
        f"commit refs/heads/b{n}\ncommitter G <g@example.org> {NOON} +0000\n"
        f"data 4\nb{n:03}\nfrom {root}\n\n"
        for n in range(wide)
    )
    repo.git("fast-import", "--quiet", stdin=stream.encode())
    tips = repo.git("for-each-ref", "--format=%(objectname)", "refs/heads/b*").split()
    merge = repo.git("commit-tree", *(o for t in tips for o in ("-p", t)), "-m", "m", tree)
    repo.git("update-ref", "refs/heads/main", merge)

    found = [page async for page in pages(connector, connect(repo.folder, page_size=MAX_TIPS + 50))]

    assert [len(list(page.signals)) for page in found] == [wide + 2]
    signals = [item for page in found for item in page.signals]
    assert {item.dedupe_key for item in signals} == {root, merge, *tips}


async def test_rewritten_history_is_told_once_and_continues_from_the_common_part(
    repo: Repo, connector: GitCommits
) -> None:
    base = repo.commit("base")
    lost = repo.commit("draft")
    connection = connect(repo.folder, page_size=1)
    _, cursor = await follow(connector, connection)

    repo.git("reset", "--quiet", "--hard", base)
    repo.commit("final 1")
    head = repo.commit("final 2")
    signals, cursor = await follow(connector, connection, cursor)

    assert kinds(signals) == ["history_rewritten", "commit", "commit"]
    assert subjects(signals) == ["final 1", "final 2"]
    assert signals[0].payload == {"last_seen": [lost], "continued_from": [base], "head": head}
    repo.commit("after")
    signals, _ = await follow(connector, connection, cursor)
    assert subjects(signals) == ["after"]
    assert kinds(signals) == ["commit"]


async def test_a_branch_set_back_is_rewritten_history_without_commits(
    repo: Repo, connector: GitCommits
) -> None:
    base = repo.commit("base")
    repo.commit("dropped")
    connection = connect(repo.folder)
    _, cursor = await follow(connector, connection)

    repo.git("reset", "--quiet", "--hard", base)
    signals, cursor = await follow(connector, connection, cursor)

    assert kinds(signals) == ["history_rewritten"]
    assert cursor == {"seen": [base]}


async def test_history_without_anything_in_common_starts_over(
    repo: Repo, connector: GitCommits
) -> None:
    repo.commit("old world")
    connection = connect(repo.folder)
    _, cursor = await follow(connector, connection)

    repo.git("checkout", "--quiet", "--orphan", "fresh")
    repo.commit("new world")
    repo.git("branch", "-M", "fresh", "main")
    signals, _ = await follow(connector, connection, cursor)

    assert kinds(signals) == ["history_rewritten", "commit"]
    assert subjects(signals) == ["new world"]


async def test_a_cursor_that_is_gone_from_the_repository_starts_over(
    repo: Repo, connector: GitCommits
) -> None:
    base = repo.commit("base")
    lost = repo.commit("lost")
    connection = connect(repo.folder)
    _, cursor = await follow(connector, connection)

    repo.git("reset", "--quiet", "--hard", base)
    repo.forget("ORIG_HEAD")
    repo.commit("new")
    signals, _ = await follow(connector, connection, cursor)

    assert lost not in repo.git("cat-file", "--batch-all-objects", "--batch-check")
    assert kinds(signals) == ["history_rewritten", "commit", "commit"]
    assert subjects(signals) == ["base", "new"]


async def test_pages_go_on_when_the_pinned_commit_is_gone(
    repo: Repo, connector: GitCommits
) -> None:
    repo.commit("one")
    base = repo.commit("two")
    repo.commit("lost")
    connection = connect(repo.folder, page_size=1)
    first = await connector.sync(connection, None)

    repo.git("reset", "--quiet", "--hard", base)
    repo.forget("ORIG_HEAD")
    signals, _ = await follow(connector, connection, first.next_cursor)

    assert kinds(signals) == ["commit"]
    assert subjects(signals) == ["two"]


async def test_text_in_any_encoding_arrives_as_clean_text(
    repo: Repo, connector: GitCommits
) -> None:
    repo.git("config", "i18n.logOutputEncoding", "ISO-8859-1")
    who = b"author J\xf6rg <j@example.org> 1700000000 +0000\ncommitter C <c@x> 1700000000 +0000\n"
    repo.raw_commit(who + b"encoding ISO-8859-1\n", b"Gr\xfc\xdfe\n")
    latin, _ = await follow(connector, connect(repo.folder))
    repo.raw_commit(who, b"broken \xff\xfe and a surrogate \xed\xa0\x80\n\nbody\x00hidden\n")
    broken, _ = await follow(connector, connect(repo.folder))
    repo.raw_commit(who + b"encoding no-such-code\n", "naïve \U0001f600\n".encode())
    unknown, _ = await follow(connector, connect(repo.folder))

    assert (latin[0].payload["author"], latin[0].payload["subject"]) == ("Jörg", "Grüße")
    text = broken[0].payload["subject"]
    assert text.startswith("broken \ufffd")
    assert text.encode()
    assert "\0" not in json.dumps(broken[0].payload, ensure_ascii=False)
    assert unknown[0].payload["subject"] == "naïve \U0001f600"


async def test_long_text_is_cut(repo: Repo, connector: GitCommits) -> None:
    who = b"author %s <c@x> 1 +0000\ncommitter C <c@x> 1 +0000\n" % (b"N" * 3_000)
    repo.raw_commit(who, b"s" * 9_000 + b"\n\n" + b"line\n" * 100_000)

    signals, _ = await follow(connector, connect(repo.folder))

    lengths = {key: len(signals[0].payload[key]) for key in ("author", "subject", "body")}
    assert lengths == {"author": 500, "subject": 1_000, "body": 20_000}


@pytest.mark.parametrize(
    ("date", "expected"),
    [
        ("1700000000 -9959", datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)),
        ("253402300800 +9999", datetime(9999, 12, 30, tzinfo=UTC)),
        ("18446744073709551615 +0000", datetime(9999, 12, 30, tzinfo=UTC)),
        ("99999999999999999999999 +0000", datetime(9999, 12, 30, tzinfo=UTC)),
        ("-5 +0000", datetime(1970, 1, 1, tzinfo=UTC)),
        ("yesterday", datetime(1970, 1, 1, tzinfo=UTC)),
        ("0 +0000", datetime(1970, 1, 1, tzinfo=UTC)),
    ],
)
async def test_absurd_dates_are_contained(
    date: str, expected: datetime, repo: Repo, connector: GitCommits
) -> None:
    header = f"author A <a@x> {date}\ncommitter C <c@x> {date}\n"
    repo.raw_commit(header.encode(), b"when\n")

    signals, _ = await follow(connector, connect(repo.folder))

    assert signals[0].occurred_at == expected


async def test_a_branch_can_be_named(repo: Repo, connector: GitCommits) -> None:
    repo.commit("on main")
    repo.git("tag", "-m", "first", "v1")
    repo.git("checkout", "--quiet", "-b", "feature/lamp")
    repo.commit("on feature")
    repo.git("checkout", "--quiet", "main")

    for url in (repo.folder, f"file://{repo.folder}"):
        feature, _ = await follow(connector, connect(url, branch="feature/lamp"))
        tagged, _ = await follow(connector, connect(url, branch="refs/tags/v1"))
        assert subjects(feature) == ["on main", "on feature"]
        assert subjects(tagged) == ["on main"]
        with pytest.raises(Permanent, match="refs/heads/none"):
            await connector.sync(connect(url, branch="none"), None)


async def test_a_head_without_commits_beside_other_branches_is_refused(
    repo: Repo, connector: GitCommits
) -> None:
    repo.commit("on main")
    repo.git("symbolic-ref", "HEAD", "refs/heads/nothing")

    for url in (repo.folder, f"file://{repo.folder}"):
        with pytest.raises(Permanent, match="HEAD"):
            await connector.sync(connect(url), None)


async def test_bare_repositories_and_worktrees_are_read_too(
    repo: Repo, connector: GitCommits, tmp_path: Path
) -> None:
    repo.commit("shared")
    repo.git("clone", "--quiet", "--bare", str(repo.folder), str(tmp_path / "bare.git"))
    repo.git("worktree", "add", "--quiet", "-b", "tree", str(tmp_path / "tree"))

    for folder in (tmp_path / "bare.git", tmp_path / "tree"):
        signals, _ = await follow(connector, connect(folder))
        assert subjects(signals) == ["shared"]


async def test_sha256_names_are_commit_names_too(connector: GitCommits, tmp_path: Path) -> None:
    repo = Repo(tmp_path / "repo", "--object-format=sha256")
    for number in range(3):
        repo.commit(f"change {number}")

    signals, _ = await follow(connector, connect(repo.folder, page_size=1))

    assert subjects(signals) == ["change 0", "change 1", "change 2"]


async def test_what_is_no_repository_is_refused(
    repo: Repo, connector: GitCommits, tmp_path: Path
) -> None:
    inside = repo.folder / "inside"
    inside.mkdir()
    with pytest.raises(Permanent, match="there is no folder"):
        await connector.sync(connect(tmp_path / "missing"), None)
    with pytest.raises(Permanent, match="not a git repository"):
        await connector.sync(connect(inside), None)
    with pytest.raises(Permanent, match="does not appear to be a git repository"):
        await connector.sync(connect(f"file://{tmp_path}/missing"), None)


@pytest.mark.parametrize(
    ("config", "field"),
    [
        (None, "config.url"),
        (["url"], "config.url"),
        ({}, "config.url"),
        ({"url": 5}, "config.url"),
        ({"url": ""}, "config.url"),
        ({"url": "--upload-pack=touch pwned"}, "config.url"),
        ({"url": "a\0b"}, "config.url"),
        ({"url": ".", "branch": "--all"}, "config.branch"),
        ({"url": ".", "branch": "main..other"}, "config.branch"),
        ({"url": ".", "branch": "main\n--all"}, "config.branch"),
        ({"url": ".", "branch": 5}, "config.branch"),
        ({"url": ".", "branch": ""}, "config.branch"),
        ({"url": ".", "page_size": 0}, "config.page_size"),
        ({"url": ".", "page_size": True}, "config.page_size"),
        ({"url": ".", "page_size": "100"}, "config.page_size"),
    ],
)
async def test_a_bad_config_names_its_field(config: Any, field: str, connector: GitCommits) -> None:
    connection = Connection(uuid4(), "acme", "git", "repo", "active", config, metadata={})

    with pytest.raises(Permanent, match=f"^{field}: "):
        await connector.sync(connection, None)


@pytest.mark.parametrize(
    "cursor", ["main", 7, {"seen": "main"}, {"seen": ["--all"]}, {"seen": [], "until": "HEAD"}]
)
async def test_a_bad_cursor_is_refused(cursor: Any, repo: Repo, connector: GitCommits) -> None:
    repo.commit("one")
    with pytest.raises(Permanent, match=r"^cursor: "):
        await connector.sync(connect(repo.folder), cursor)


@pytest.mark.parametrize("url", ["ext::sh -c touch% pwned", "ftp://example.org/x", "fd::17"])
async def test_other_protocols_are_refused(url: str, connector: GitCommits) -> None:
    with pytest.raises(Permanent, match="not allowed"):
        await connector.sync(connect(url), None)


async def test_reading_a_folder_runs_none_of_its_programs(
    repo: Repo, connector: GitCommits, tmp_path: Path
) -> None:
    """A partial clone fetches what it lacks with whatever program its own config names."""
    repo.commit("one")
    trap = tmp_path / "sprung"
    repo.git("config", "remote.origin.url", str(tmp_path))
    repo.git("config", "remote.origin.promisor", "true")
    repo.git("config", "remote.origin.uploadpack", f"touch {trap};")
    repo.git("config", "extensions.partialClone", "origin")
    repo.git("config", "core.repositoryFormatVersion", "1")
    absent = {"seen": ["0123456789" * 4]}

    signals, _ = await follow(connector, connect(repo.folder), absent)

    assert kinds(signals) == ["history_rewritten", "commit"]
    assert not trap.exists()
    with pytest.raises(subprocess.CalledProcessError):
        repo.git("cat-file", "-e", absent["seen"][0])
    assert trap.exists()  # the trap does work where nothing prevents it


async def test_the_callers_own_repository_does_not_leak_in(
    repo: Repo, connector: GitCommits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.commit("mine")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")

    for url in (repo.folder, f"file://{repo.folder}"):
        signals, _ = await follow(connector, connect(url))
        assert subjects(signals) == ["mine"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
async def test_a_folder_of_another_user_is_read(repo: Repo, connector: GitCommits) -> None:
    repo.commit("theirs")
    for path in (repo.folder, *repo.folder.rglob("*")):
        os.chown(path, 12345, 12345)

    signals, _ = await follow(connector, connect(repo.folder))

    assert subjects(signals) == ["theirs"]


async def test_a_missing_git_program_is_named(
    repo: Repo, connector: GitCommits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(Permanent, match="install git"):
        await connector.sync(connect(repo.folder), None)


async def test_cancelling_ends_git_and_its_children(
    repo: Repo, connector: GitCommits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive = tmp_path / "alive"
    os.mkfifo(alive)
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ncat\nexec 3>{alive}\nsleep 60 &\necho started >&3\nwait\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")

    running = asyncio.create_task(connector.sync(connect(repo.folder), None))
    with await asyncio.to_thread(alive.open) as witness:
        assert await asyncio.to_thread(witness.readline) == "started\n"
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        # The pipe ends only when the last process that holds it is gone.
        assert await asyncio.to_thread(witness.read) == ""


async def test_an_address_is_mirrored_and_fetched_each_time(
    repo: Repo, connector: GitCommits, tmp_path: Path
) -> None:
    repo.git("config", "uploadpack.allowFilter", "true")
    (repo.folder / "large").write_text("a large file")
    repo.git("add", "large")
    repo.commit("one")
    connection = connect(f"file://{repo.folder}", page_size=1)
    signals, cursor = await follow(connector, connection)
    assert subjects(signals) == ["one"]

    base = repo.git("rev-parse", "HEAD")
    repo.commit("two")
    signals, cursor = await follow(connector, connection, cursor)
    assert subjects(signals) == ["two"]

    repo.git("reset", "--quiet", "--hard", base)
    repo.commit("other two")
    signals, cursor = await follow(connector, connection, cursor)
    assert kinds(signals) == ["history_rewritten", "commit"]

    (mirror,) = (tmp_path / "cache").iterdir()
    objects = repo.git(
        f"--git-dir={mirror}", "cat-file", "--batch-all-objects", "--batch-check=%(objecttype)"
    )
    assert set(objects.split()) == {"commit"}


async def test_the_pages_of_one_run_ask_the_server_once(
    repo: Repo, connector: GitCommits, tmp_path: Path
) -> None:
    for number in range(3):
        repo.commit(f"change {number}")
    connection = connect(f"file://{repo.folder}", page_size=1)
    first = await connector.sync(connection, None)

    repo.folder.rename(tmp_path / "away")
    rest, cursor = await follow(connector, connection, first.next_cursor)

    assert subjects(rest) == ["change 1", "change 2"]
    with pytest.raises(Permanent):
        await connector.sync(connection, cursor)


async def test_a_lost_mirror_is_made_again(
    repo: Repo, connector: GitCommits, tmp_path: Path
) -> None:
    repo.commit("one")
    repo.commit("two")
    connection = connect(f"file://{repo.folder}", page_size=1)
    first = await connector.sync(connection, None)
    shutil.rmtree(tmp_path / "cache")

    signals, _ = await follow(connector, connection, first.next_cursor)

    assert subjects(signals) == ["two"]


async def test_a_shallow_clone_can_be_mirrored(
    repo: Repo, connector: GitCommits, tmp_path: Path
) -> None:
    repo.commit("deep")
    repo.commit("near")
    shallow = tmp_path / "shallow"
    repo.git("clone", "--quiet", "--depth=1", f"file://{repo.folder}", str(shallow))

    for url in (shallow, f"file://{shallow}"):
        signals, _ = await follow(connector, connect(url))
        assert subjects(signals) == ["near"]


async def test_many_connections_share_a_mirror_at_once(repo: Repo, tmp_path: Path) -> None:
    for number in range(5):
        repo.commit(f"change {number}")
    url = f"file://{repo.folder}"
    workers = [GitCommits(cache_folder=tmp_path / "cache") for _ in range(6)]

    runs = await asyncio.gather(*(follow(worker, connect(url)) for worker in workers))

    expected = [f"change {number}" for number in range(5)]
    assert [subjects(signals) for signals, _ in runs] == [expected] * 6
    assert len(list((tmp_path / "cache").iterdir())) == 1


async def test_the_cache_stands_in_the_home_folder_of_the_program(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYNCLINE_HOME", str(tmp_path / "home"))
    repo.commit("one")

    await follow(GitCommits(), connect(f"file://{repo.folder}"))

    (mirrors,) = (tmp_path / "home").iterdir()
    assert mirrors.stat().st_mode & 0o777 == 0o700


class GitServer(BaseHTTPRequestHandler):
    """Git over HTTP, answered by git's own program; paths such as /status/500 only fail."""

    root: Path

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if path.startswith("/status/"):
            self.send_error(int(path.split("/")[2]))
            return
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
        }
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        done = subprocess.run(
            ["git", "http-backend"], env=environment, input=body, capture_output=True, timeout=60
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.send_response(int(headers.pop("Status", "200").split()[0]))
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_GET  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def http_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    handler = type("Handler", (GitServer,), {"root": tmp_path})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=partial(server.serve_forever, poll_interval=0.02))
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


async def test_commits_arrive_over_http(
    repo: Repo, connector: GitCommits, http_address: str
) -> None:
    for number in range(5):
        repo.commit(f"change {number}")

    signals, _ = await follow(connector, connect(f"http://{http_address}/repo/.git", page_size=2))

    assert subjects(signals) == [f"change {number}" for number in range(5)]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("status/401", Unauthorized),
        ("status/403", Unauthorized),
        ("status/404", Permanent),
        ("status/429", RateLimited),
        ("status/500", Transient),
        ("nowhere", Permanent),
    ],
)
async def test_what_a_server_answers_becomes_an_error_without_secrets(
    path: str, expected: type[SyncError], connector: GitCommits, http_address: str
) -> None:
    url = f"http://user:s3cr3t/p@ss'w@{http_address}/{path}?token=t0k3n"
    tame = f"http://user:s3cr3t@{http_address}/{path}?token=t0k3n"

    with pytest.raises(expected) as caught:
        await connector.sync(connect(tame), None)
    with pytest.raises(SyncError) as misread:
        await connector.sync(connect(url), None)

    assert caught.type is expected
    for said in (caught.value.message, misread.value.message):
        assert said
        assert not {part for part in ("s3cr3t", "ss'w", "t0k3n") if part in said}


@pytest.mark.parametrize(
    "url", [lambda port: f"http://127.0.0.1:{port}/x", lambda port: f"git://127.0.0.1:{port}/x"]
)
async def test_a_server_that_is_away_is_a_passing_fault(
    url: Callable[[int], str], connector: GitCommits, unused_tcp_port: int
) -> None:
    with pytest.raises(Transient):
        await connector.sync(connect(url(unused_tcp_port)), None)
