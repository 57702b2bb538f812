"""The git connector against git's own HTTP server."""

import base64
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from support.repositories import GitServer, Repo, connect, first_page, follow, kinds, subjects
from syncline.connectors.git import GitCommits
from syncline.errors import Permanent, RateLimited, SyncError, Transient, Unauthorized
from syncline.testing.checks import Subject
from syncline.testing.conformance import ConnectorConformance

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="the git program is missing")


async def test_commits_arrive_over_http(
    repo: Repo, connector: GitCommits, http_address: str
) -> None:
    repo.changes(5)

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
async def test_error_statuses_become_errors_without_secrets(
    path: str, expected: type[SyncError], connector: GitCommits, http_address: str
) -> None:
    url = f"http://user:s3cr3t@{http_address}/{path}"

    with pytest.raises(expected) as caught:
        await first_page(connector, connect(url))

    assert caught.type is expected
    assert caught.value.message
    assert "s3cr3t" not in caught.value.message


async def test_a_password_that_breaks_the_url_is_not_shown(connector: GitCommits) -> None:
    with pytest.raises(Permanent) as misread:
        await first_page(connector, connect("http://user:s3cr3t/p@ss'w@127.0.0.1:8000/x"))

    assert misread.value.message
    assert not {part for part in ("s3cr3t", "ss'w") if part in misread.value.message}


@pytest.mark.parametrize(
    "url", [lambda port: f"http://127.0.0.1:{port}/x", lambda port: f"git://127.0.0.1:{port}/x"]
)
async def test_an_unreachable_server_is_transient(
    url: Callable[[int], str], connector: GitCommits, unused_tcp_port: int
) -> None:
    with pytest.raises(Transient):
        await first_page(connector, connect(url(unused_tcp_port)))


async def test_a_force_push_arrives_over_http(
    repo: Repo, connector: GitCommits, http_address: str
) -> None:
    base = repo.commit("base")
    repo.commit("draft")
    connection = connect(f"http://{http_address}/repo/.git", branch="main")
    _, cursor = await follow(connector, connection)

    repo.git("reset", "--quiet", "--hard", base)
    repo.commit("final")
    signals, cursor = await follow(connector, connection, cursor)
    repo.git("checkout", "--quiet", "-b", "other")
    repo.git("branch", "-D", "main")
    gone, _ = await follow(connector, connection, cursor)

    assert kinds(signals) == ["history_rewritten", "commit"]
    assert subjects(signals) == ["final"]
    assert kinds(gone) == ["branch_deleted"]


@pytest.mark.parametrize(
    ("credentials", "user", "wanted"),
    [
        ({"username": "ada", "password": "s3cr3t"}, "", "ada:s3cr3t"),
        ({"token": "s3cr3t"}, "", "x-access-token:s3cr3t"),
        ({"access_token": "s3cr3t", "username": "oauth2"}, "", "oauth2:s3cr3t"),
        (None, "ada:s3cr3t%2F@", "ada:s3cr3t/"),
    ],
)
async def test_credentials_appear_in_no_argument_and_no_file(
    credentials: Any,
    user: str,
    wanted: str,
    repo: Repo,
    connector: GitCommits,
    http_address: str,
    git_server: type[GitServer],
    arguments_of_git: Callable[[], str],
    tmp_path: Path,
) -> None:
    repo.commit("one")
    git_server.wanted = "Basic " + base64.b64encode(wanted.encode()).decode()
    url = f"http://{user}{http_address}/repo/.git"

    signals, _ = await follow(connector, replace(connect(url), credentials=credentials))
    git_server.wanted = "Basic other"
    with pytest.raises(Unauthorized) as refused:
        await first_page(connector, replace(connect(url), credentials=credentials))

    assert subjects(signals) == ["one"]
    seen, kept = arguments_of_git() + refused.value.message, contents_of(tmp_path / "cache")
    assert "remote-http" in seen  # the program to which git passes the URL
    for secret in ("s3cr3t", base64.b64encode(wanted.encode()).decode()):
        assert secret not in seen
        assert secret.encode() not in kept


@pytest.fixture
def arguments_of_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """The arguments of each program that git has started."""
    trace, program = tmp_path / "trace", tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nGIT_TRACE={trace} exec {shutil.which("git")} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return trace.read_text


def contents_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


async def test_a_server_of_plain_files_is_read_too(
    repo: Repo, connector: GitCommits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "*")
    repo.changes(3)
    repo.git("clone", "--quiet", "--bare", str(repo.folder), str(tmp_path / "site.git"))
    repo.git(f"--git-dir={tmp_path / 'site.git'}", "update-server-info")
    handler = type("Files", (SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(tmp_path))) as server:
        thread = Thread(target=partial(server.serve_forever, poll_interval=0.005))
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/site.git"
        signals, _ = await follow(connector, connect(url))
        server.shutdown()
        thread.join()

    assert len(signals) == 3


class TestConformance(ConnectorConformance):
    """Over HTTP; git makes the requests itself, so the checks cannot inject faults."""

    @pytest.fixture(autouse=True)
    def served(self, repo: Repo, http_address: str, tmp_path: Path) -> None:
        repo.changes(4)
        self.config = {"url": f"http://{http_address}/repo/.git", "page_size": 2}
        self.cache = tmp_path / "cache"

    def subject(self) -> Subject:
        return Subject(make=lambda: GitCommits(self.cache), config=self.config)
