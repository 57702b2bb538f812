"""Turn commits into signals, both as git stores them and as git prints them."""

import re
from collections.abc import Collection
from datetime import UTC, datetime
from typing import NamedTuple

from syncline.errors import Transient
from syncline.model import Signal

FIELDS = ("%H", "%P", "%ct", "%at", "%an", "%ae", "%s", "%b")
# Git accepts any number as a date; 0001-01-02 to 9999-12-30 can be shown in every zone.
EARLIEST, LATEST = -62_135_510_400, 253_402_128_000
MAX_DIGITS = 20  # of a date; larger numbers are after LATEST anyway
MAX_KEPT = 256 * 1024  # bytes of a stored commit; its texts are cut far below that
BLANK = b" \t\r\n"  # what is white space for git
# What git reads as we do. The last author, committer and encoding count for git, so commits that
# repeat one of these, and those in another encoding, are left to git.
USUAL = re.compile(
    rb"tree [0-9a-f]++\n((?:parent [0-9a-f]++\n)*+)"
    rb"author ([^<>\n]*+)<([^<>\n]*+)> ([0-9]{1,20}+) [+-][0-9]{4}\n"
    rb"committer [^<>\n]*+<[^<>\n]*+> ([0-9]{1,20}+) [+-][0-9]{4}\n"
    rb"(?:(?!author |committer |encoding )[^\n]++\n)*+\n"
    rb"(?:[ \t\r]*+\n)*+"
)
PARAGRAPH_END = re.compile(rb"\n[ \t\r]*+\n")


class Stored(NamedTuple):
    """A commit as git stores it; `content` is only the beginning of a large one."""

    sha: str
    content: bytes
    is_cut: bool


class StoredCommits:
    """Splits what `git cat-file --batch` prints into commits, in whatever pieces it arrives.

    It never holds more than one piece and `MAX_KEPT`, however large a commit is.
    """

    def __init__(self) -> None:
        self._waiting = b""
        self._skipped = 0  # bytes to come of a large commit whose beginning was taken

    def __len__(self) -> int:
        """Return how many bytes are waiting to be taken."""
        return len(self._waiting)

    def add(self, piece: bytes) -> None:
        skipped = min(self._skipped, len(piece))
        self._skipped -= skipped
        self._waiting += piece[skipped:]

    def take(self, most: int, most_bytes: int) -> list[Stored]:
        """Return the commits that have arrived; stop at the one that reaches a limit."""
        found: list[Stored] = []
        at = size = 0
        while len(found) < most and size < most_bytes:
            commit, at = self._next(at)
            if commit is None:
                break
            found.append(commit)
            size += len(commit.content)
        self._waiting = self._waiting[at:]
        return found

    def _next(self, at: int) -> tuple[Stored | None, int]:
        """Return the commit whose heading is here, if it has arrived, and where the next begins."""
        waiting = self._waiting
        end = waiting.find(b"\n", at)
        if end < 0:
            return None, at
        sha, kind, *sizes = waiting[at:end].decode().split(" ")
        if kind != "commit":
            raise Transient(f"the repository has no commit {sha}; it may have just been changed")
        size = int(sizes[0])
        begin, after = end + 1, end + 1 + size + 1  # a line break follows each commit
        is_cut = size > MAX_KEPT
        if len(waiting) < (begin + MAX_KEPT if is_cut else after):
            return None, at
        self._skipped = max(0, after - len(waiting))
        content = waiting[begin : begin + min(size, MAX_KEPT)]
        return Stored(sha, content, is_cut), min(after, len(waiting))


def signals_of_stored(
    commits: Collection[Stored], without_parents: Collection[str]
) -> list[Signal | None]:
    """Return the signals of stored commits, or None for each that only git can read."""
    return [_signal_of_stored(commit, without_parents) for commit in commits]


def _signal_of_stored(commit: Stored, without_parents: Collection[str]) -> Signal | None:
    sha, content, _ = commit
    found = USUAL.match(content)
    if found is None or b"\0" in content:
        return None
    parents, author, email, authored, committed = found.groups()
    begin = found.end()
    end_of_subject = PARAGRAPH_END.search(content, begin)
    end = end_of_subject.start() if end_of_subject else len(content)
    lines = [line.rstrip(BLANK) for line in content[begin:end].split(b"\n")]
    texts = (
        author.rstrip(BLANK),
        email,
        b" ".join(line for line in lines if line),
        content[end:],
    )
    return _signal(
        sha,
        [] if sha in without_parents else parents.decode().split()[1::2],
        instant(committed),
        instant(authored),
        *(text.decode(errors="replace") for text in texts),
    )


def signals_of_printed(printed: bytes) -> list[Signal]:
    """Return the signals of commits whose `FIELDS` git has printed, each ended by a zero byte."""
    *values, _ = printed.decode(errors="replace").split("\0")
    return [_signal_of_fields(*row) for row in zip(*[iter(values)] * len(FIELDS), strict=True)]


def _signal_of_fields(*fields: str) -> Signal:
    heading, parents, committed, authored, *texts = fields
    sha = heading.split()[-1]  # the last word of the heading before each commit
    return _signal(sha, parents.split(), instant(committed), instant(authored), *texts)


def instant(seconds: str | bytes) -> datetime:
    """Return the instant of a date as git prints it, or the epoch if it is not a date."""
    number = int(seconds[:MAX_DIGITS] or 0)
    return datetime.fromtimestamp(min(max(number, EARLIEST), LATEST), UTC)


def _signal(
    sha: str, parents: list[str], committed: datetime, authored: datetime, *texts: str
) -> Signal:
    author, email, subject, body = texts
    payload = {
        "sha": sha,
        "parents": parents,
        "author": author[:500],
        "email": email[:500],
        "authored_at": authored.isoformat(),
        "subject": subject[:1_000],
        "body": body.strip()[:20_000],
    }
    return Signal("commit", committed, payload, dedupe_key=sha)
