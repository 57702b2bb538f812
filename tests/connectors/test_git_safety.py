"""The git connector: bad input, and programs that must not run."""

import asyncio
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from support.repositories import Repo, connect, follow, kinds, subjects
from syncline.connectors.git import GitCommits
from syncline.errors import Permanent
from syncline.model import Connection

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="the git program is missing")


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
