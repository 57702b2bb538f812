"""The git connector: bad input, and programs that must not run."""

import asyncio
import os
import shutil
import subprocess
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from support.repositories import (
    GitServer,
    Repo,
    connect,
    first_page,
    follow,
    kinds,
    serve,
    subjects,
)
from syncline.connectors.git import GitCommits
from syncline.errors import Permanent, SyncError, Unauthorized
from syncline.http.auth import basic
from syncline.model import Connection
from syncline.settings.git import GitSettings

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="the git program is missing")


NOT_READ = (
    "config.url: there is no readable git repository; "
    "add its folder to git.local_roots if there should be"
)


def rooted(tmp_path: Path, *roots: Path) -> GitCommits:
    """Return a connector that an engine configured; it may read these folders."""
    git = GitCommits(tmp_path / "cache")
    git.configure(GitSettings(local_roots=list(roots)))
    return git


async def answer(connector: GitCommits, url: object) -> str:
    with pytest.raises(Permanent) as refused:
        await first_page(connector, connect(url))
    return refused.value.message


async def test_local_repositories_are_refused_by_default(repo: Repo, tmp_path: Path) -> None:
    """The error does not say whether a folder exists."""
    repo.commit("one")
    for git in (GitCommits(tmp_path / "cache"), rooted(tmp_path, tmp_path / "elsewhere")):
        for path in (repo.folder, repo.folder / ".git", tmp_path, tmp_path / "missing", "/etc"):
            assert await answer(git, path) == NOT_READ
            assert await answer(git, f"file://{path}") == NOT_READ


async def test_repositories_inside_an_allowed_root_are_read(repo: Repo, tmp_path: Path) -> None:
    repo.commit("one")
    repo.git("worktree", "add", "--quiet", "-b", "side", str(tmp_path / "tree"))
    repo.git("clone", "--quiet", "--bare", str(repo.folder), str(tmp_path / "bare.git"))
    inside = rooted(tmp_path, tmp_path)
    named = GitCommits(tmp_path / "cache", local_roots=[repo.folder])

    for path in (repo.folder, repo.folder / ".git", tmp_path / "tree", tmp_path / "bare.git"):
        signals, _ = await follow(inside, connect(path))
        assert subjects(signals) == ["one"]
    signals, _ = await follow(named, connect(f"file://{repo.folder}"))
    assert subjects(signals) == ["one"]
    assert await answer(inside, tmp_path / "missing") == NOT_READ
    assert await answer(inside, repo.folder / "sub") == NOT_READ


async def test_what_leads_out_of_a_root_is_refused(repo: Repo, tmp_path: Path) -> None:
    repo.commit("secret")
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to(repo.folder)
    (root / "file").mkdir()
    (root / "file" / ".git").write_text(f"gitdir: {repo.folder / '.git'}")
    (root / "linked").mkdir()
    (root / "linked" / ".git").symlink_to(repo.folder / ".git")
    repo.git("worktree", "add", "--quiet", "-b", "side", str(root / "tree"))
    for part in ("HEAD", "objects", "refs"):
        whole = root / f"borrows-{part}"
        shutil.copytree(repo.folder / ".git", whole)
        aside = tmp_path / f"aside-{part}"
        (whole / part).rename(aside)
        (whole / part).symlink_to(aside)
    repo.git("clone", "--quiet", "--shared", str(repo.folder), str(root / "shared"))
    git = rooted(tmp_path, root)

    for path in sorted(root.iterdir()):
        assert await answer(git, path) == NOT_READ
    assert await answer(git, f"{root}/../repo") == NOT_READ
    signals, _ = await follow(rooted(tmp_path, root, repo.folder), connect(root / "shared"))
    assert subjects(signals) == ["secret"]  # it can be read if the lender's folder is allowed


def test_tenants_may_not_use_what_is_open_to_operators(tmp_path: Path) -> None:
    assert GitCommits.local
    assert GitCommits().why_not_for_tenants() is None
    assert "git.local_roots" in str(rooted(tmp_path, tmp_path).why_not_for_tenants())
    assert GitCommits(local_roots=[tmp_path]).why_not_for_tenants()
    spoken = GitCommits()
    spoken.configure(GitSettings(schemes=["ssh"]))
    assert spoken.why_not_for_tenants()


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
        await first_page(connector, connection)


@pytest.mark.parametrize(
    "cursor", ["main", 7, {"seen": "main"}, {"seen": ["--all"]}, {"seen": [], "until": "HEAD"}]
)
async def test_a_bad_cursor_is_refused(cursor: Any, connector: GitCommits) -> None:
    with pytest.raises(Permanent, match=r"^cursor: "):
        await first_page(connector, connect("https://repo.invalid/x.git"), cursor)


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
    for name in ("core.fsmonitor", "core.sshCommand", "core.pager", "core.alternateRefsCommand"):
        repo.git("config", name, f"touch {trap}; true")
    repo.git("config", "include.path", str(tmp_path / "elsewhere"))
    absent = {"seen": ["0123456789" * 4]}

    signals, _ = await follow(connector, connect(repo.folder), absent)

    assert kinds(signals) == ["history_rewritten", "commit"]
    assert not trap.exists()
    with pytest.raises(subprocess.CalledProcessError):
        repo.git("cat-file", "-e", absent["seen"][0])
    assert trap.exists()  # without our protection the trap works


async def test_git_variables_of_the_caller_do_not_leak_in(
    repo: Repo, connector: GitCommits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.commit("mine")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")

    signals, _ = await follow(connector, connect(repo.folder))

    assert subjects(signals) == ["mine"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
async def test_a_folder_of_another_user_is_read(repo: Repo, connector: GitCommits) -> None:
    repo.commit("theirs")
    for path in (repo.folder, *repo.folder.rglob("*")):
        os.chown(path, 12345, 12345)

    signals, _ = await follow(connector, connect(repo.folder))

    assert subjects(signals) == ["theirs"]


async def test_the_operators_identity_is_not_used(
    repo: Repo,
    connector: GitCommits,
    http_address: str,
    git_server: type[GitServer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    repo.commit("private")
    git_server.wanted = basic("ada", "s3cr3t")
    host, home = http_address.partition(":")[0], tmp_path / "home"
    home.mkdir()
    (home / ".netrc").write_text(f"machine {host} login ada password s3cr3t\n")
    (home / ".git-credentials").write_text(f"http://ada:s3cr3t@{http_address}\n")
    (home / ".gitconfig").write_text(
        "[credential]\n\thelper = store\n"
        f'[http]\n\textraHeader = "Authorization: {basic("ada", "s3cr3t")}"\n'
    )
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", str(home / ".gitconfig"))
    url = f"http://{http_address}/repo/.git"
    trusting = {n: v for n, v in os.environ.items() if not n.startswith("GIT_CONFIG_GLOBAL")}
    seen = await asyncio.to_thread(
        subprocess.run, ["git", "ls-remote", url], env=trusting, capture_output=True
    )
    assert seen.returncode == 0  # without our protection it is used

    with pytest.raises(Unauthorized):
        await first_page(connector, connect(url))


async def test_git_gets_its_own_environment(
    repo: Repo, connector: GitCommits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.commit("one")
    program, told = tmp_path / "bin" / "git", tmp_path / "told"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nenv > {told}\nexec {shutil.which("git")} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    hidden = ("SYNCLINE_SECRET_KEYS", "PGPASSWORD", "AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK")
    for name in (*hidden, "GIT_SSH_COMMAND", "GIT_EXTERNAL_DIFF", "https_proxy"):
        monkeypatch.setenv(name, "canary")

    await first_page(connector, connect(repo.folder))

    lines = told.read_text()
    assert "canary" not in lines
    assert f"HOME={Path.home()}\n" not in lines
    for line in ("GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_TERMINAL_PROMPT=0"):
        assert f"{line}\n" in lines
    assert "GIT_ALLOW_PROTOCOL=\n" in lines  # whatever the repository names


class Talkative(BaseHTTPRequestHandler):
    """Answers 403 with a body, or with the longest error that git's protocol allows."""

    text: bytes
    status = 403

    def do_GET(self) -> None:
        error = b"ERR " + self.text[:65_000]
        lines = b"001e# service=git-upload-pack\n0000%04x%s" % (len(error) + 4, error)
        kind = "x-git-upload-pack-advertisement"
        self.send_response(self.status)
        refused = self.status == 403
        self.send_header("Content-Type", "text/plain" if refused else f"application/{kind}")
        self.end_headers()
        self.wfile.write(self.text if refused else lines)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (403, b"internal canary"),
        (403, b"remote:\n" * 9_000),
        (200, b"://" * 40_000),
        (200, b"?" * 120_000),
        (200, b"token=" * 20_000),
    ],
    ids=["refusal", "long refusal", "addresses", "noise", "secrets"],
)
async def test_a_servers_message_is_cut_and_a_refusal_is_not_quoted(
    status: int, text: bytes, connector: GitCommits
) -> None:
    handler = type("Handler", (Talkative,), {"text": text, "status": status})
    with serve(handler) as address:
        before = time.process_time()
        with pytest.raises(SyncError) as said:
            await first_page(connector, connect(f"http://{address}/x"))

    assert time.process_time() - before < 1
    assert len(said.value.message) <= 500
    if status == 403:
        assert isinstance(said.value, Unauthorized)
        assert "canary" not in said.value.message


async def test_a_git_that_cannot_be_pinned_is_refused(
    connector: GitCommits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, http_address: str
) -> None:
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    script = f'[ "$1" != version ] && exec {shutil.which("git")} "$@"; echo git version 2.36.6'
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")

    with pytest.raises(Permanent, match=r"git 2\.36\.6 is too old; install 2\.37 or newer"):
        await first_page(connector, connect(f"http://{http_address}/repo/.git"))


def test_it_runs_on_uvloop(repo: Repo, connector: GitCommits, http_address: str) -> None:
    """Git commands that ended quickly raised "the handler is closed" there."""
    uvloop = pytest.importorskip("uvloop")
    repo.commit("one")
    repo.commit("two")

    async def work() -> list[list[str]]:
        urls = (repo.folder, f"http://{http_address}/repo/.git")
        return [subjects((await follow(connector, connect(url)))[0]) for url in urls]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(work()) == [["one", "two"]] * 2


async def test_a_missing_git_program_is_named(
    repo: Repo, connector: GitCommits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(Permanent, match="install git"):
        await first_page(connector, connect(repo.folder))


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

    running = asyncio.create_task(first_page(connector, connect(repo.folder)))
    with await asyncio.to_thread(alive.open) as witness:
        assert await asyncio.to_thread(witness.readline) == "started\n"
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        # The pipe ends only when the last process that holds it is gone.
        assert await asyncio.to_thread(witness.read) == ""
