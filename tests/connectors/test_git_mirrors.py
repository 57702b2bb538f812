"""The git connector: mirrors of URLs."""

import asyncio
import fcntl
import shutil
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any, cast

import pytest

from support.repositories import GitServer, Repo, connect, first_page, follow, kinds, subjects
from syncline.connectors.git import GitCommits
from syncline.connectors.git.mirror import Pace
from syncline.errors import Permanent, Transient
from syncline.model import Connection, SyncResult
from syncline.testing.trial import prepare_trial

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="the git program is missing")


@pytest.fixture
def url(http_address: str) -> str:
    """Where `repo` is served."""
    return f"http://{http_address}/repo/.git"


def mirrors(tmp_path: Path) -> list[Path]:
    return [*tmp_path.glob("cache/*/*")]


async def test_a_url_is_mirrored_and_fetched_each_time(
    repo: Repo, connector: GitCommits, tmp_path: Path, url: str
) -> None:
    repo.git("config", "uploadpack.allowFilter", "true")
    (repo.folder / "large").write_text("a large file")
    repo.git("add", "large")
    repo.commit("one")
    connection = connect(url, page_size=1)
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

    (mirror,) = mirrors(tmp_path)
    objects = repo.git(
        f"--git-dir={mirror}", "cat-file", "--batch-all-objects", "--batch-check=%(objecttype)"
    )
    assert set(objects.split()) == {"commit"}


async def test_the_pages_of_one_run_ask_the_server_once(
    repo: Repo, connector: GitCommits, tmp_path: Path, url: str
) -> None:
    repo.changes(3)
    connection = connect(url, page_size=1)
    first = await first_page(connector, connection)

    repo.folder.rename(tmp_path / "away")
    rest, cursor = await follow(connector, connection, first.next_cursor)

    assert subjects(rest) == ["change 1", "change 2"]
    with pytest.raises(Permanent):
        await first_page(connector, connection, cursor)


async def test_a_lost_mirror_is_made_again(
    repo: Repo, connector: GitCommits, tmp_path: Path, url: str
) -> None:
    repo.commit("one")
    repo.commit("two")
    connection = connect(url, page_size=1)
    first = await first_page(connector, connection)
    shutil.rmtree(tmp_path / "cache")

    signals, _ = await follow(connector, connection, first.next_cursor)

    assert subjects(signals) == ["two"]


async def test_a_shallow_clone_can_be_mirrored(
    repo: Repo, connector: GitCommits, tmp_path: Path, http_address: str
) -> None:
    repo.commit("deep")
    repo.commit("near")
    shallow = tmp_path / "shallow"
    repo.git("clone", "--quiet", "--depth=1", f"file://{repo.folder}", str(shallow))

    for url in (shallow, f"http://{http_address}/shallow/.git"):
        signals, _ = await follow(connector, connect(url))
        assert subjects(signals) == ["near"]


async def test_each_connection_has_a_mirror_of_its_own(
    repo: Repo, tmp_path: Path, url: str
) -> None:
    repo.changes(3)
    own = connect(url)
    others = [replace(own, tenant_id="birch"), connect(url), own]  # the last one runs twice
    workers = [prepare_trial(GitCommits(cache_folder=tmp_path / "cache")) for _ in range(4)]

    runs = await asyncio.gather(
        *(
            follow(cast(GitCommits, worker), connection)
            for worker, connection in zip(workers, [own, *others], strict=True)
        )
    )

    expected = [f"change {number}" for number in range(3)]
    assert [subjects(signals) for signals, _ in runs] == [expected] * 4
    assert len(mirrors(tmp_path)) == 3


async def test_the_cache_is_in_the_home_folder(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("SYNCLINE_HOME", str(tmp_path / "home"))
    repo.commit("one")

    await follow(cast(GitCommits, prepare_trial(GitCommits())), connect(url))

    (folder,) = (tmp_path / "home").iterdir()
    (own,) = folder.iterdir()
    assert own.stat().st_mode & 0o777 == 0o700


def sliced(tmp_path: Path, **pace: Any) -> GitCommits:
    """Return a connector that fetches one slice per run, the first with three commits."""
    connector = GitCommits(tmp_path / "cache", Pace(**{"slice_commits": 3, "patience": 0, **pace}))
    prepare_trial(connector)
    return connector


async def fetched(
    connector: GitCommits, connection: Connection, cursor: Any = None
) -> tuple[list[int], SyncResult]:
    """Run until everything is fetched; return the commits after each run, and the first page."""
    counts = []
    page = await first_page(connector, connection, cursor)
    while "mirrored" in page.next_cursor:
        assert (page.signals, page.has_more) == ((), True)
        counts.append(page.next_cursor["mirrored"])
        page = await first_page(connector, connection, page.next_cursor)
    return counts, page


async def test_a_long_first_fetch_arrives_over_several_runs(
    repo: Repo, tmp_path: Path, url: str
) -> None:
    repo.changes(30)
    connector, connection = sliced(tmp_path), connect(url)

    counts, page = await fetched(connector, connection)

    assert counts == [3, 9, 21]  # each slice twice the one before, while they are quick
    assert subjects(list(page.signals)) == [f"change {number}" for number in range(30)]


async def test_an_interrupted_fetch_continues_after_its_last_slice(
    repo: Repo, tmp_path: Path, http_address: str, git_server: type[GitServer]
) -> None:
    repo.changes(20)
    connector = sliced(tmp_path, patience=60)
    connection = connect(f"http://{http_address}/repo/.git")
    git_server.released, git_server.stuck = Event(), Event()
    run = asyncio.create_task(first_page(connector, connection))
    await asyncio.to_thread(git_server.stuck.wait, 60)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    (mirror,) = mirrors(tmp_path)
    kept = repo.git(f"--git-dir={mirror}", "rev-list", "--all", "--count")
    next_slice = (mirror / "syncline-slice").read_text()
    git_server.released.set()
    signals, _ = await follow(connector, connection)

    assert (kept, next_slice) == ("3", "1")
    assert subjects(signals) == [f"change {number}" for number in range(20)]


async def test_leftovers_of_a_killed_fetch_are_removed(
    repo: Repo, tmp_path: Path, url: str
) -> None:
    repo.changes(9)
    connector, connection = sliced(tmp_path), connect(url)
    page = await first_page(connector, connection)
    (mirror,) = mirrors(tmp_path)
    (mirror / "shallow.lock").touch()
    (mirror / "objects" / "pack" / "tmp_pack_x").touch()

    _, page = await fetched(connector, connection, page.next_cursor)

    assert len(list(page.signals)) == 9
    assert not (mirror / "objects" / "pack" / "tmp_pack_x").exists()


async def test_two_runs_do_not_fetch_into_a_mirror_at_once(
    repo: Repo, tmp_path: Path, url: str
) -> None:
    repo.commit("one")
    connector, connection = sliced(tmp_path), connect(url)
    await follow(connector, connection)
    (mirror,) = mirrors(tmp_path)

    with (mirror / "syncline-lock").open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(Transient, match="another run"):
            await first_page(connector, connection)


async def test_a_changed_config_starts_a_new_mirror_and_removes_the_old_one(
    repo: Repo, connector: GitCommits, tmp_path: Path, url: str
) -> None:
    repo.commit("on main")
    repo.git("branch", "side")
    connection = connect(url, branch="main")
    await follow(connector, connection)
    (before,) = mirrors(tmp_path)

    await follow(connector, replace(connection, config={"url": url, "branch": "side"}))

    (after,) = mirrors(tmp_path)
    assert after != before
