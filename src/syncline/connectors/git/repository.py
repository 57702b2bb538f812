"""Read commits from a git folder."""

import re
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from syncline.children.limits import ChildLimits
from syncline.children.process import TooMuchOutput
from syncline.connectors.git.commits import (
    FIELDS,
    Stored,
    StoredCommits,
    signals_of_printed,
    signals_of_stored,
)
from syncline.connectors.git.program import Git, GitStream, NoSuchRef, OutOfTime
from syncline.errors import Transient
from syncline.model import Signal
from syncline.offload import in_thread_if_large

COMMIT_NAME = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
MAX_PRINTED = 64_000_000
MAX_TAKEN = 4_000_000  # bytes of stored commits that are taken together


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
        if not names:
            return []
        asked = "".join(f"{name}^{{commit}}\n" for name in names)
        answer = await self.git("cat-file", "--batch-check=%(objectname)", stdin=asked)
        return [line for line in answer.splitlines() if COMMIT_NAME.fullmatch(line)]

    async def survey(self, head: str, seen: Collection[str]) -> "Survey":
        """Return the names of the unseen commits, and the seen commits that they build on.

        This is the only walk, and it needs little memory. A walk that also prints what is in the
        commits keeps all of them in memory, because it prints the oldest first.
        """
        revisions = "\n".join([head, *(f"^{sha}" for sha in seen), ""])
        options = ("--topo-order", "--reverse", "--boundary", "--stdin")
        return Survey(await self.git.output("rev-list", *options, stdin=revisions))

    @asynccontextmanager
    async def reader(self, survey: "Survey") -> AsyncIterator["CommitReader"]:
        """Yield a reader of the unseen commits; its process ends with the block."""
        arguments = ("cat-file", "--batch", "--buffer")
        async with self.git.stream(*arguments, stdin=survey.names) as stream:
            yield CommitReader(self, stream, len(survey))

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
        return await in_thread_if_large(len(printed), signals_of_printed, printed)

    def without_parents(self) -> frozenset[str]:
        """Return the commits whose parents are missing; none if the history is complete."""
        with suppress(FileNotFoundError):
            return frozenset((self.folder / "shallow").read_text().split())
        return frozenset()

    async def _print(self, commits: Collection[str], fields: Collection[str]) -> bytes:
        layout = f"--format={'%x00'.join((*fields, ''))}"
        options = ("--no-walk=unsorted", "--encoding=UTF-8", layout, "--stdin")
        asked = "\n".join([*commits, ""])
        return await self.git.output("rev-list", *options, stdin=asked, most=MAX_PRINTED)


class Survey:
    """The names of many commits as git printed them, one a line, parents first.

    They are not split into a list: for a million names that would block the event loop too long.
    """

    def __init__(self, printed: bytes) -> None:
        self.boundary: set[str] = set()
        at = 0
        while printed.startswith(b"-", at):  # git prints the boundary first
            end = printed.index(b"\n", at)
            self.boundary.add(printed[at + 1 : end].decode())
            at = end + 1
        self.names = printed[at:]

    def __len__(self) -> int:
        return self.names.count(b"\n")


class CommitReader:
    """Reads the commits of a survey from one process, page by page.

    The process prints commits as they are stored. We parse the usual ones; git itself prints the
    others, because it knows all encodings and every damaged header.
    """

    def __init__(self, repository: Repository, stream: GitStream, left: int) -> None:
        self.left = left  # commits that were not taken
        self.taken_bytes = 0
        self._repository, self._stream = repository, stream
        self._without_parents = repository.without_parents()
        self._stored = StoredCommits()

    async def take(self, most: int) -> list[Signal]:
        """Return the next commits as signals, at most this many, and fewer if they are large.

        Raise OutOfTime once git's time is over and everything that it printed was taken.
        """
        stored = await self._take_stored(min(most, self.left))
        size = sum(len(commit.content) for commit in stored)
        found = await in_thread_if_large(size, signals_of_stored, stored, self._without_parents)
        signals = await self._complete(stored, found)
        self.left -= len(stored)
        self.taken_bytes += size
        return signals

    async def _take_stored(self, most: int) -> list[Stored]:
        found: list[Stored] = []
        size = 0
        while len(found) < most and size < MAX_TAKEN:
            some = self._stored.take(most - len(found), MAX_TAKEN - size)
            found += some
            size += sum(len(commit.content) for commit in some)
            if not some and not await self._read_more(is_needed=not found):
                break
        return found

    async def _read_more(self, *, is_needed: bool) -> bool:
        """Return whether more was read; if it is not needed, git's time may be over."""
        try:
            piece = await self._stream.read()
        except OutOfTime:
            if is_needed:
                raise
            return False
        if not piece:
            raise Transient("git printed fewer commits than it had listed")
        self._stored.add(piece)
        return True

    async def _complete(
        self, stored: Sequence[Stored], found: Sequence[Signal | None]
    ) -> list[Signal]:
        """Return the signals in order; git prints the commits that have none yet.

        Git keeps in memory all commits that it is asked for together, so it prints large ones one
        by one.
        """
        unusual = [commit for commit, signal in zip(stored, found, strict=True) if signal is None]
        printed: dict[str, Signal] = {}
        waiting = [commit.sha for commit in unusual if not commit.is_cut]
        while waiting:
            some = await self._repository.read(waiting)
            printed.update((signal.payload["sha"], signal) for signal in some)
            waiting = waiting[len(some) :]
        for commit in unusual:
            if commit.is_cut:
                (printed[commit.sha],) = await self._repository.read([commit.sha])
        return [signal or printed[commit.sha] for commit, signal in zip(stored, found, strict=True)]
