"""A git folder, and what it holds."""

import re
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path

from syncline.children.limits import ChildLimits
from syncline.connectors.git.program import Git, NoSuchRef
from syncline.model import Signal

COMMIT_NAME = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
FIELDS = ("%H", "%P", "%ct", "%at", "%an", "%ae", "%s", "%b")
LAYOUT = f"--format={'%x00'.join((*FIELDS, ''))}"
# Git takes any number for a date; from 0001-01-02 to 9999-12-30 it can be shown in every zone.
EARLIEST, LATEST = -62_135_510_400, 253_402_128_000


class Repository:
    """Reads a git folder."""

    def __init__(self, folder: Path, limits: ChildLimits) -> None:
        self.folder = folder
        self.git = Git(folder, limits)

    async def newest(self, ref: str) -> str | None:
        """Return the commit that `ref` names now, or None where nothing was ever committed."""
        found = await self.find([ref])
        if not found and await self.git("for-each-ref", "--count=1"):
            raise NoSuchRef(f"config.branch: there is no commit at {ref}")
        return found[0] if found else None

    async def find(self, names: Collection[str]) -> list[str]:
        """Return the commits behind these names, leaving out those that are not there."""
        asked = "".join(f"{name}^{{commit}}\n" for name in names)
        answer = await self.git("cat-file", "--batch-check=%(objectname)", stdin=asked)
        return [line for line in answer.splitlines() if COMMIT_NAME.fullmatch(line)]

    async def survey(self, head: str, seen: Collection[str]) -> tuple[list[str], set[str]]:
        """Return the commits not seen, parents first, and where they meet what was seen."""
        revisions = "\n".join([head, *(f"^{sha}" for sha in seen), ""])
        options = ("--topo-order", "--reverse", "--boundary", "--stdin")
        lines = (await self.git("rev-list", *options, stdin=revisions)).split()
        return [s for s in lines if s[0] != "-"], {s[1:] for s in lines if s[0] == "-"}

    async def read(self, commits: Collection[str]) -> list[Signal]:
        """Return these commits as signals, in the order given."""
        if not commits:
            return []
        options = ("--no-walk=unsorted", "--encoding=UTF-8", LAYOUT, "--stdin")
        printed = await self.git("rev-list", *options, stdin="\n".join([*commits, ""]))
        *values, _ = printed.split("\0")
        return [_commit_signal(*row) for row in zip(*[iter(values)] * len(FIELDS), strict=True)]


def instant(seconds: str) -> datetime:
    """Return the time of a date as git prints it; the epoch, where it could make out none."""
    return datetime.fromtimestamp(min(max(int(seconds or 0), EARLIEST), LATEST), UTC)


def _commit_signal(*fields: str) -> Signal:
    heading, parents, committed, authored, author, email, subject, body = fields
    sha = heading.split()[-1]  # on the line below the heading that git gives each commit
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
