"""Git repositories, and a server for them."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.repositories import GitServer, Repo, serve
from syncline.connectors.git import GitCommits
from syncline.testing.trial import prepare_trial


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path / "repo")


@pytest.fixture
def connector(tmp_path: Path) -> GitCommits:
    """A connector that may reach this machine."""
    connector = GitCommits(cache_folder=tmp_path / "cache")
    prepare_trial(connector)
    return connector


@pytest.fixture
def git_server(tmp_path: Path) -> type[GitServer]:
    """The server behind `http_address`; a test may make it ask for credentials."""
    if not Path(subprocess.getoutput("git --exec-path"), "git-http-backend").exists():
        pytest.skip("this git comes without git http-backend")
    return type("Handler", (GitServer,), {"root": tmp_path})


@pytest.fixture
def http_address(git_server: type[GitServer]) -> Iterator[str]:
    with serve(git_server) as address:
        yield address
