"""The git connector: rewritten history and deleted branches."""

import shutil

import pytest

from support.repositories import Repo, connect, first_page, follow, kinds, subjects
from syncline.connectors.git import GitCommits

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="the git program is missing")


async def test_rewritten_history_is_reported_once_and_continues_from_the_common_part(
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


async def test_the_same_cursor_gives_the_same_page_after_a_rewrite(
    repo: Repo, connector: GitCommits
) -> None:
    base = repo.commit("base")
    repo.commit("draft")
    connection = connect(repo.folder, branch="main")
    _, cursor = await follow(connector, connection)

    repo.git("reset", "--quiet", "--hard", base)
    repo.commit("final")
    rewritten = [await first_page(connector, connection, cursor) for _ in range(2)]
    repo.git("branch", "-M", "main", "other")
    deleted = [await first_page(connector, connection, cursor) for _ in range(2)]

    assert kinds(list(rewritten[0].signals)) == ["history_rewritten", "commit"]
    assert kinds(list(deleted[0].signals)) == ["branch_deleted"]
    assert (rewritten[0], deleted[0]) == (rewritten[1], deleted[1])


async def test_a_branch_that_was_reset_is_rewritten_history_without_commits(
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


async def test_unrelated_history_starts_over(repo: Repo, connector: GitCommits) -> None:
    repo.commit("old world")
    connection = connect(repo.folder)
    _, cursor = await follow(connector, connection)

    repo.git("checkout", "--quiet", "--orphan", "fresh")
    repo.commit("new world")
    repo.git("branch", "-M", "fresh", "main")
    signals, _ = await follow(connector, connection, cursor)

    assert kinds(signals) == ["history_rewritten", "commit"]
    assert subjects(signals) == ["new world"]


async def test_a_cursor_whose_commit_is_gone_starts_over(repo: Repo, connector: GitCommits) -> None:
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


async def test_pages_continue_when_the_pinned_commit_is_gone(
    repo: Repo, connector: GitCommits
) -> None:
    repo.commit("one")
    base = repo.commit("two")
    repo.commit("lost")
    connection = connect(repo.folder, page_size=1)
    first = await first_page(connector, connection)

    repo.git("reset", "--quiet", "--hard", base)
    repo.forget("ORIG_HEAD")
    signals, _ = await follow(connector, connection, first.next_cursor)

    assert kinds(signals) == ["commit"]
    assert subjects(signals) == ["two"]


async def test_a_deleted_branch_is_reported_once_and_may_come_back(
    repo: Repo, connector: GitCommits
) -> None:
    base = repo.commit("base")
    repo.git("checkout", "--quiet", "-b", "topic")
    tip = repo.commit("topic 1")
    connection = connect(repo.folder, branch="topic")
    first, cursor = await follow(connector, connection)
    repo.git("checkout", "--quiet", "main")

    repo.git("branch", "-D", "topic")
    gone, cursor = await follow(connector, connection, cursor)
    still_gone, cursor = await follow(connector, connection, cursor)
    repo.git("branch", "topic", base)
    back, cursor = await follow(connector, connection, cursor)

    assert subjects(first) == ["base", "topic 1"]
    assert [(signal.kind, signal.payload) for signal in gone] == [
        ("branch_deleted", {"ref": "refs/heads/topic", "last_seen": [tip]})
    ]
    assert gone[0].occurred_at == first[-1].occurred_at
    assert still_gone == []
    assert kinds(back) == ["history_rewritten"]
    assert cursor == {"seen": [base]}


async def test_a_repository_that_was_emptied_has_lost_its_branch(
    repo: Repo, connector: GitCommits
) -> None:
    repo.commit("one")
    connection = connect(repo.folder)
    _, cursor = await follow(connector, connection)

    repo.forget("refs/heads/main")
    signals, _ = await follow(connector, connection, cursor)

    assert kinds(signals) == ["branch_deleted"]
    assert signals[0].occurred_at.year == 1970
