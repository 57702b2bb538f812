"""The connections of `up --demo`."""

import shutil
from pathlib import Path

import pytest

from support.repositories import Repo
from support.world import World
from syncline import Connector, Engine, Settings
from syncline.cli.demo import add_demo_connections, allow_repository, find_repository
from syncline.sdk.registry import announced_connectors
from syncline.testing.trial import take_pages


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "repository/.git").mkdir(parents=True)
    (tmp_path / "repository/src/deep").mkdir(parents=True)
    return tmp_path / "repository"


async def test_a_dozen_accounts_of_three_tenants_and_the_repository(
    world: World, repository: Path
) -> None:
    told = await add_demo_connections(world.engine, repository / "src/deep")

    added = await world.engine.connections.list()
    assert len(added) == 13
    assert len({connection.tenant_id for connection in added}) == 3
    (git,) = (connection for connection in added if connection.provider_slug == "git")
    assert git.config == {"url": str(repository)}
    assert told == [
        f"The demo also syncs the commits of {repository}.",
        "Added 13 demo connections.",
    ]


async def test_the_second_time_nothing_is_added(world: World, repository: Path) -> None:
    await add_demo_connections(world.engine, repository)

    told = await add_demo_connections(world.engine, repository)

    assert len(await world.engine.connections.list()) == 13
    assert told[1] == "Added 0 demo connections; 13 existed already."


async def test_without_a_repository_the_rest_is_shown(world: World, tmp_path: Path) -> None:
    told = await add_demo_connections(world.engine, tmp_path)

    assert len(await world.engine.connections.list()) == 12
    assert told[0] == f"{tmp_path} is not in a git repository, so the demo syncs none."


def test_without_the_git_program_it_says_so(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")

    found, told = find_repository(repository)

    assert found is None
    assert told.startswith("git is not installed")


@pytest.mark.skipif(shutil.which("git") is None, reason="the git program is missing")
async def test_the_demo_may_read_its_repository_also_in_a_worktree(tmp_path: Path) -> None:
    repo = Repo(tmp_path / "repo")
    repo.commit("one")
    repo.git("worktree", "add", "--quiet", "-b", "side", str(tmp_path / "tree"))
    (tmp_path / "tree" / "src").mkdir()

    for folder in (repo.folder, tmp_path / "tree" / "src"):
        settings = allow_repository(Settings(), folder)
        git = next(one for one in announced_connectors() if one.provider == "git")
        Engine(settings, connectors=[git])
        found, _ = find_repository(folder)
        assert await subjects_of(git, str(found)) == ["one"]
    assert allow_repository(Settings(), tmp_path) == Settings()


async def subjects_of(git: Connector, url: str) -> list[str]:
    pages = await take_pages(git, {"url": url})
    return [signal.payload["subject"] for page in pages for signal in page.signals]
