"""Read commits from a git folder."""

import asyncio
import re
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path

from syncline.children.limits import ChildLimits
from syncline.children.process import TooMuchOutput
from syncline.connectors.git.program import Git, NoSuchRef
from syncline.model import Signal

COMMIT_NAME = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
FIELDS = ("%H", "%P", "%ct", "%at", "%an", "%ae", "%s", "%b")
MAX_LINE = 66  # bytes: a mark, a SHA-256 commit name, and a newline
LARGE = 1_000_000
MAX_PRINTED = 64_000_000
# Git accepts any number as a date; 0001-01-02 to 9999-12-30 can be shown in every zone.
EARLIEST, LATEST = -62_135_510_400, 253_402_128_000


class Repository:
    """Reads a git folder."""

    def __init__(self, folder: Path, limits: ChildLimits) -> None:
        self.folder = folder
        self.git = Git(folder, limits)

    async def newest(self, ref: str) -> str | None:
        """Return the commit at `ref`, or None if the repository has no commits."""
        found = await self.find([ref])
        if not found and await self.git("for-each-ref", "--count=1"):
            raise NoSuchRef(f"config.branch: {ref} does not exist")
        return found[0] if found else None

    async def find(self, names: Collection[str]) -> list[str]:
        """Return the commits with these names, without those that do not exist."""
        asked = "".join(f"{name}^{{commit}}\n" for name in names)
        answer = await self.git("cat-file", "--batch-check=%(objectname)", stdin=asked)
        return [line for line in answer.splitlines() if COMMIT_NAME.fullmatch(line)]

    async def survey(self, head: str, seen: Collection[str]) -> tuple["Names", set[str]]:
        """Return the unseen commits, parents first, and the seen commits that they build on."""
        revisions = "\n".join([head, *(f"^{sha}" for sha in seen), ""])
        options = ("--topo-order", "--reverse", "--boundary", "--stdin")
        names = Names(await self.git.output("rev-list", *options, stdin=revisions))
        return names, names.boundary

    async def read(self, commits: Sequence[str]) -> list[Signal]:
        """Return these commits as signals, in order; fewer if they are very large."""
        if not commits:
            return []
        try:
            printed = await self._print(commits, FIELDS)
        except TooMuchOutput:
            if len(commits) > 1:
                return await self.read(commits[: len(commits) // 2])
            printed = await self._print(commits, FIELDS[:4] + ("",) * 4)
        if len(printed) > LARGE:  # in a thread, to keep the event loop free
            return await asyncio.to_thread(_commit_signals, printed)
        return _commit_signals(printed)

    async def _print(self, commits: Collection[str], fields: Collection[str]) -> bytes:
        layout = f"--format={'%x00'.join((*fields, ''))}"
        options = ("--no-walk=unsorted", "--encoding=UTF-8", layout, "--stdin")
        asked = "\n".join([*commits, ""])
        return await self.git.output("rev-list", *options, stdin=asked, most=MAX_PRINTED)


class Names:
    """The names of many commits as git printed them, one a line; `-` marks the boundary.

    They are not split into a list: for a million names that would block the event loop too long.
    """

    def __init__(self, printed: bytes) -> None:
        self._printed = printed
        self.boundary: set[str] = set()
        at = printed.find(b"-")
        while at >= 0:
            end = printed.index(b"\n", at)
            self.boundary.add(printed[at + 1 : end].decode())
            at = printed.find(b"-", end)

    def __len__(self) -> int:
        return self._printed.count(b"\n") - len(self.boundary)

    def first(self, count: int) -> list[str]:
        """Return the first of these commits, without the boundary."""
        lines = self._printed[: (count + len(self.boundary)) * MAX_LINE].split()
        return [line.decode() for line in lines if line[:1] != b"-"][:count]


def _commit_signals(printed: bytes) -> list[Signal]:
    *values, _ = printed.decode(errors="replace").split("\0")
    return [_commit_signal(*row) for row in zip(*[iter(values)] * len(FIELDS), strict=True)]


def instant(seconds: str) -> datetime:
    """Return the instant of a date as git prints it, or the epoch if it is not a date."""
    return datetime.fromtimestamp(min(max(int(seconds or 0), EARLIEST), LATEST), UTC)


def _commit_signal(*fields: str) -> Signal:
    heading, parents, committed, authored, author, email, subject, body = fields
    sha = heading.split()[-1]  # the last word of the heading before each commit
    payload = {
        "sha": sha,
        "parents": parents.split(),
        "author": author[:500],
        "email": email[:500],
        "authored_at": instant(authored).isoformat(),
        "subject": subject[:1_000],
        "body": body.strip()[:20_000],
    }
    return Signal("commit", instant(committed), payload, dedupe_key=sha)
