"""The git connector: what a commit becomes."""

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from support.repositories import NOON, Repo, connect, follow, subjects
from syncline.connectors.git import GitCommits
from syncline.model import Signal

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="the git program is missing")


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


async def test_text_in_any_encoding_arrives_as_clean_text(
    repo: Repo, connector: GitCommits
) -> None:
    repo.git("config", "i18n.logOutputEncoding", "ISO-8859-1")
    who = b"author J\xf6rg <j@example.org> 1700000000 +0000\ncommitter C <c@x> 1700000000 +0000\n"
    broken_text = b"broken \xff\xfe and a surrogate \xed\xa0\x80\n\nbody\x00hidden\n"
    sha = repo.raw_commit(who + b"encoding ISO-8859-1\n", b"Gr\xfc\xdfe\n")
    sha = repo.raw_commit(who, broken_text, parent=sha)
    repo.raw_commit(who + b"encoding no-such-code\n", "naïve \U0001f600\n".encode(), parent=sha)

    signals, _ = await follow(connector, connect(repo.folder))

    latin, broken, unknown = (signal.payload for signal in signals)
    assert (latin["author"], latin["subject"]) == ("Jörg", "Grüße")
    assert broken["subject"].startswith("broken \ufffd")
    assert broken["subject"].encode()
    assert "\0" not in json.dumps(broken, ensure_ascii=False)
    assert unknown["subject"] == "naïve \U0001f600"


async def test_long_text_is_cut(repo: Repo, connector: GitCommits) -> None:
    who = b"author %s <c@x> 1 +0000\ncommitter C <c@x> 1 +0000\n" % (b"N" * 3_000)
    repo.raw_commit(who, b"s" * 9_000 + b"\n\n" + b"line\n" * 100_000)

    signals, _ = await follow(connector, connect(repo.folder))

    lengths = {key: len(signals[0].payload[key]) for key in ("author", "subject", "body")}
    assert lengths == {"author": 500, "subject": 1_000, "body": 20_000}


ABSURD_DATES = {
    "1700000000 -9959": datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC),
    "253402300800 +9999": datetime(9999, 12, 30, tzinfo=UTC),
    "18446744073709551615 +0000": datetime(9999, 12, 30, tzinfo=UTC),
    "99999999999999999999999 +0000": datetime(9999, 12, 30, tzinfo=UTC),
    "-5 +0000": datetime(1970, 1, 1, tzinfo=UTC),
    "yesterday": datetime(1970, 1, 1, tzinfo=UTC),
    "0 +0000": datetime(1970, 1, 1, tzinfo=UTC),
}


async def test_absurd_dates_are_contained(repo: Repo, connector: GitCommits) -> None:
    sha = ""
    for date in ABSURD_DATES:
        header = f"author A <a@x> {date}\ncommitter C <c@x> {date}\n"
        sha = repo.raw_commit(header.encode(), date.encode(), parent=sha)

    signals, _ = await follow(connector, connect(repo.folder))

    found = {signal.payload["subject"]: signal.occurred_at for signal in signals}
    assert found == ABSURD_DATES


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
    repo.changes(3)

    signals, _ = await follow(connector, connect(repo.folder, page_size=1))

    assert subjects(signals) == ["change 0", "change 1", "change 2"]
