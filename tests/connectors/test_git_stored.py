"""The git connector: commits as git stores them are read as git itself reads them."""

import random
import shutil
from pathlib import Path

import pytest

from support.repositories import Repo
from syncline.children.limits import ChildLimits
from syncline.connectors.git.commits import (
    MAX_KEPT,
    Stored,
    StoredCommits,
    instant,
    signals_of_stored,
)
from syncline.connectors.git.repository import Repository, Survey
from syncline.model import Signal

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="the git program is missing")

NAMES = (b"Ada ", b"", b"  Ada\t ", b"J\xc3\xb6rg ", b"J\xf6rg ", b"a<b ", b"a>b ", b"\x0b ", b"N")
MAILS = (b"<a@x>", b"<>", b"< a@x >", b"<a<b>", b"<a>b>", b"a@x", b"<a@x", b"<\xff>")
DATES = (
    *(b" 1700000000 +0000", b" 0 +0000", b" 17 -9959", b" 99999999999999999999999 +0000"),
    *(b" -5 +0000", b" 1700000000", b"1700000000 +0000", b"  7  +0100", b" yesterday", b""),
    *(b" 1700000000 +1", b" 1700000000 +00000", b" 1700000000 0000", b" 5 +0000 \r"),
)
HEADERS = (
    *(b"", b"", b"", b"gpgsig -----BEGIN\n abc\n \n author X <x> 1 +0000\n"),
    *(b"mergetag object 1\n encoding X\n", b"encoding ISO-8859-1\n", b"encoding UTF-8\n"),
    *(b"encoding no-such-code\n", b"author Later <l@x> 5 +0000\n", b"committer L <l@x> 6 +0000\n"),
)
LINES = (
    *(b"subject", b"a body line", b"", b"", b"   ", b"\t", b"\r", b"ends with\r", b"  indented"),
    *(b"\x0b", b"\x0c", b"\x1c", b"\x85", b"trailing  ", "naïve \u2028 \U0001f600".encode()),
    *(b"broken \xff\xfe", b"\xed\xa0\x80", b"nothing \0 hidden"),
)
NORMAL = b"author Ada <a@x> 1700000000 +0000\ncommitter Ada <a@x> 1700000000 +0000\n"


def any_commit(chance: random.Random, tree: bytes) -> bytes:
    """Return a commit with at most one odd part before its message, so that many are usual."""
    usual = (NAMES[0], MAILS[0], DATES[0])
    odd = (chance.choice(NAMES), chance.choice(MAILS), chance.choice(DATES))
    people = [chance.choices((usual, odd), (4, 1))[0] for _ in range(2)]
    parents = b"".join(
        b"parent %040x\n" % chance.getrandbits(160) for _ in range(chance.choice((0, 1, 1, 2, 3)))
    )
    message = b"\n".join(
        chance.choice(LINES[: chance.choice((9, 18))]) for _ in range(chance.randint(0, 6))
    )
    return b"".join(
        (
            b"tree %s\n%s" % (tree, parents),
            b"author %s\ncommitter %s\n" % (b"".join(people[0]), b"".join(people[1])),
            chance.choice(HEADERS),
            b"\n",
            message,
            chance.choice((b"\n", b"")),
        )
    )


@pytest.mark.parametrize("seed", range(3))
async def test_what_we_read_from_a_commit_is_what_git_prints(
    seed: int, repo: Repo, tmp_path: Path
) -> None:
    chance, tree = random.Random(seed), repo.git("mktree").encode()
    commits = {any_commit(chance, tree) for _ in range(400)}
    for number, content in enumerate(sorted(commits)):
        (tmp_path / f"{number}.commit").write_bytes(content)
    paths = "\n".join(str(tmp_path / f"{number}.commit") for number in range(len(commits)))
    write = ("hash-object", "-t", "commit", "-w", "--literally", "--stdin-paths")
    names = repo.git(*write, stdin=paths.encode()).split()
    repository = Repository(repo.folder / ".git", ChildLimits())

    async with repository.reader(Survey("\n".join([*names, ""]).encode())) as reader:
        ours = await reader.take(len(names))
    by_git = await repository.read(names)

    assert [signal.dedupe_key for signal in ours] == names
    assert ours == by_git
    stored = [
        Stored(name, content, False) for name, content in zip(names, sorted(commits), strict=True)
    ]
    parsed = [signal for signal in signals_of_stored(stored, ()) if signal is not None]
    assert len(parsed) > len(names) / 5  # otherwise git was compared with itself


def printed(*contents: bytes) -> bytes:
    return b"".join(
        b"%040x commit %d\n%s\n" % (number, len(content), content)
        for number, content in enumerate(contents)
    )


@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
def test_commits_are_found_in_whatever_pieces_they_arrive(size: int) -> None:
    contents = [b"a\nb", b"", b"%040x commit 3\nabc\n" % 7, b"x" * 500]
    text, found, stored = printed(*contents), list[Stored](), StoredCommits()

    for start in range(0, len(text), size):
        stored.add(text[start : start + size])
        found += stored.take(100, 10_000)

    assert [commit.content for commit in found] == contents
    assert [int(commit.sha, 16) for commit in found] == [0, 1, 2, 3]
    assert len(stored) == 0


def test_no_more_is_taken_than_asked_for() -> None:
    stored = StoredCommits()
    stored.add(printed(*[b"x" * 10] * 9))

    taken = [len(stored.take(*limits)) for limits in ((2, 1_000), (100, 25), (100, 1_000))]

    assert taken == [2, 3, 4]


@pytest.mark.parametrize("size", [4_000, 100_000, 3_000_000])
def test_only_the_beginning_of_a_large_commit_is_held(size: int) -> None:
    large = NORMAL * (10 * MAX_KEPT // len(NORMAL))
    text, found, stored, most = printed(b"one", large, b"two"), list[Stored](), StoredCommits(), 0

    for start in range(0, len(text), size):
        stored.add(text[start : start + size])
        most = max(most, len(stored))
        found += stored.take(100, 10**9)

    assert [len(commit.content) for commit in found] == [3, MAX_KEPT, 3]
    assert [commit.is_cut for commit in found] == [False, True, False]
    assert most <= MAX_KEPT + size + 1_000


def test_the_text_of_a_large_commit_is_cut() -> None:
    tree = b"tree %040x\n" % 1
    content = (tree + NORMAL + b"\nsubject\n\n" + b"word " * MAX_KEPT)[:MAX_KEPT]

    [signal] = signals_of_stored([Stored("0" * 40, content, True)], ())

    assert isinstance(signal, Signal)
    assert (signal.payload["subject"], len(signal.payload["body"])) == ("subject", 20_000)


def test_a_date_of_very_many_digits_is_a_late_date() -> None:
    assert instant("9" * 100_000).year == 9999
