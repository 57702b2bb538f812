"""The git connector: pages follow history, whatever its shape."""

import random
import shutil
from typing import Any

import pytest

from support.repositories import NOON, Repo, connect, first_page, follow, kinds, pages, subjects
from syncline.connectors.git import GitCommits
from syncline.connectors.git.connector import MAX_TIPS
from syncline.errors import Permanent
from syncline.model import Signal, SyncResult

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="the git program is missing")


async def test_pages_run_from_the_oldest_commit_to_the_newest(
    repo: Repo, connector: GitCommits
) -> None:
    repo.changes(7)
    connection = connect(repo.folder, page_size=3)

    found = [page async for page in pages(connector, connection)]

    assert [len(list(page.signals)) for page in found] == [3, 3, 1]
    signals = [item for page in found for item in page.signals]
    assert subjects(signals) == [f"change {number}" for number in range(7)]
    assert found[-1].next_cursor == {"seen": [repo.git("rev-parse", "HEAD")]}


async def test_without_new_commits_the_page_is_empty(repo: Repo, connector: GitCommits) -> None:
    repo.commit("only")
    connection = connect(repo.folder)
    _, cursor = await follow(connector, connection)

    page = await first_page(connector, connection, cursor)

    assert page == SyncResult(signals=(), next_cursor=cursor, has_more=False)


async def test_an_empty_repository_has_an_empty_page(repo: Repo, connector: GitCommits) -> None:
    assert await first_page(connector, connect(repo.folder)) == SyncResult()


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
    first = await first_page(connector, connection)

    repo.git("checkout", "--quiet", "-b", "side", "HEAD~4")
    repo.commit("side", at=NOON - 90_000)
    repo.git("checkout", "--quiet", "main")
    repo.git("merge", "--quiet", "-m", "merge side", "side", at=repo.clock + 60)
    rest, cursor = await follow(connector, connection, first.next_cursor)
    later, _ = await follow(connector, connection, cursor)

    signals = [*first.signals, *rest, *later]
    assert subjects(signals) == [*(f"main {number}" for number in range(5)), "side", "merge side"]


@pytest.mark.parametrize("seed", range(2))
async def test_any_shape_of_history_arrives_once_and_parents_first(
    seed: int, repo: Repo, connector: GitCommits
) -> None:
    chance = random.Random(seed)
    connection = connect(repo.folder, page_size=chance.randint(3, 7))
    tree = repo.git("mktree")
    commits: list[str] = []
    signals: list[Signal] = []
    cursor: Any = None
    for number in range(30):
        chosen = chance.sample(commits, min(len(commits), chance.choice([0, 1, 1, 1, 2, 3])))
        parents = [option for parent in chosen for option in ("-p", parent)]
        when = NOON + chance.randint(-90_000, 90_000)
        commits.append(repo.git("commit-tree", *parents, "-m", f"c{number}", tree, at=when))
        if number % 9 == 0:
            tips = [option for parent in commits for option in ("-p", parent)]
            head = repo.git("commit-tree", *tips, "-m", f"h{number}", tree, at=when)
            commits.append(head)
            repo.git("update-ref", "refs/heads/main", head)
            page = await first_page(
                connector, connection, cursor
            )  # pages continue while the branch moves
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


async def test_a_branch_can_be_named(repo: Repo, connector: GitCommits) -> None:
    repo.commit("on main")
    repo.git("tag", "-m", "first", "v1")
    repo.git("checkout", "--quiet", "-b", "feature/lamp")
    repo.commit("on feature")
    repo.git("checkout", "--quiet", "main")

    feature, _ = await follow(connector, connect(repo.folder, branch="feature/lamp"))
    tagged, _ = await follow(connector, connect(repo.folder, branch="refs/tags/v1"))
    assert subjects(feature) == ["on main", "on feature"]
    assert subjects(tagged) == ["on main"]
    with pytest.raises(Permanent, match="refs/heads/none"):
        await first_page(connector, connect(repo.folder, branch="none"))


async def test_a_head_without_commits_is_refused_if_another_branch_has_some(
    repo: Repo, connector: GitCommits
) -> None:
    repo.commit("on main")
    repo.git("symbolic-ref", "HEAD", "refs/heads/nothing")

    with pytest.raises(Permanent, match="HEAD"):
        await first_page(connector, connect(repo.folder))
