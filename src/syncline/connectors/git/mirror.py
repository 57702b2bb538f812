"""The local mirror of a remote repository, fetched in slices."""

import fcntl
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple

from syncline.children.limits import ChildLimits
from syncline.clock import monotonic, pause
from syncline.connectors.git.origin import Origin
from syncline.connectors.git.program import Git, NoSuchRef
from syncline.connectors.git.repository import Repository
from syncline.connectors.git.storage import NEW
from syncline.errors import SyncError, Transient

MIRRORED = "refs/syncline/head"
TREELESS = (("remote.origin.promisor", "true"), ("remote.origin.partialCloneFilter", "tree:0"))
FETCH = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--update-shallow")
SHRINKS_TO = 4  # the next slice is this part of one that never finished


class StillFetching(Exception):
    """The first fetch continues in the next run; what has arrived is kept."""

    def __init__(self, commits: int) -> None:
        super().__init__(commits)
        self.commits = commits


class Pace(NamedTuple):
    """How a first fetch is divided: commits in the first slice, and seconds per run.

    After a slice that took less than `quick` seconds, the next is twice as large.
    """

    slice_commits: int = 2_000
    patience: float = 60.0
    quick: float = 10.0

    def within(self, run_seconds: float) -> "Pace":
        """Return the pace for a run with this time limit, so that it ends by itself."""
        return self._replace(
            patience=min(self.patience, run_seconds / 3), quick=min(self.quick, run_seconds / 30)
        )


class Mirror(Repository):
    """The mirror of one ref, for one connection.

    The first fetch comes in slices, from the newest commit down. Each slice is kept however the
    run ends, so a long history arrives over several runs. If a run dies during a slice, the next
    run takes a smaller one.
    """

    def __init__(self, folder: Path, origin: Origin, pace: Pace, limits: ChildLimits) -> None:
        super().__init__(folder, limits)
        self._origin, self._pace, self._limits = origin, pace, limits

    async def newest(self, ref: str) -> str | None:
        async with self._alone() as lock:
            self._sweep()
            fetch = await self._fetching(f"+{ref}:{MIRRORED}", lock)
            try:
                await self._bring_up_to_date(fetch)
            except NoSuchRef:
                if await fetch.git.output("ls-remote", "origin", protocols=[self._origin.protocol]):
                    raise
                return None
        return (await self.find([MIRRORED]))[0]

    async def _bring_up_to_date(self, fetch: "Fetch") -> None:
        is_new = not await self.git("for-each-ref", "--count=1", "refs/syncline/")
        if not is_new and self._is_whole():
            await fetch()
            return
        try:
            await self._fetch_slices(fetch, is_new=is_new)
        except SyncError as error:
            if (
                "does not support" not in error.message
            ):  # a server of plain files cannot send slices
                raise
            await fetch()

    async def _fetch_slices(self, fetch: "Fetch", *, is_new: bool) -> None:
        began, size = monotonic(), self._slice_size()
        option = "--depth" if is_new else "--deepen"
        while option == "--depth" or not self._is_whole():
            slice_began, boundary = monotonic(), self._boundary()
            self._note("slice", str(max(1, size // SHRINKS_TO)))  # in case this one never ends
            await fetch(f"{option}={size}")
            if option == "--deepen" and self._boundary() == boundary:
                self._note("whole", boundary)  # the origin itself is shallow
            option = "--deepen"
            size = size * 2 if monotonic() - slice_began < self._pace.quick else size
            self._note("slice", str(size))
            if not self._is_whole() and monotonic() - began >= self._pace.patience:
                raise StillFetching(int(await self.git("rev-list", "--count", MIRRORED)))

    def _slice_size(self) -> int:
        noted = self._noted("slice")
        return int(noted) if noted.isdigit() else self._pace.slice_commits

    def _boundary(self) -> str:
        """Return where the history is cut off; empty if it is complete."""
        return "\n".join(sorted(self.without_parents()))

    def _is_whole(self) -> bool:
        boundary = self._boundary()
        return not boundary or boundary == self._noted("whole")

    def _note(self, name: str, text: str) -> None:
        (self.folder / f"syncline-{name}").write_text(text)

    def _noted(self, name: str) -> str:
        with suppress(FileNotFoundError):
            return (self.folder / f"syncline-{name}").read_text()
        return ""

    async def make(self) -> None:
        """Create the folder if it does not exist."""
        if (self.folder / "HEAD").exists():
            return
        with tempfile.TemporaryDirectory(prefix=NEW, dir=self.folder.parent) as workshop:
            draft = Path(workshop, "mirror")
            await Git(draft, self._limits)("init", "--quiet", "--bare", "--template=")
            with suppress(OSError):  # another run was first; its mirror is as good
                os.rename(draft, self.folder)

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[int]:
        """Let one process fetch at a time; if this one is killed, git still holds the lock."""
        with _open(self.folder / "syncline-lock") as file:
            began = monotonic()
            while not _lock(file):
                if monotonic() - began >= self._pace.patience:
                    raise Transient("another run is still fetching this repository")
                await pause(0.05)
            yield file.fileno()

    def _sweep(self) -> None:
        """Remove lock files of a killed fetch, which would stop every later one."""
        for pattern in ("*.lock", "refs/syncline/*.lock", "objects/pack/tmp_*"):
            for left in self.folder.glob(pattern):
                left.unlink(missing_ok=True)

    async def _fetching(self, refspec: str, lock: int) -> "Fetch":
        settings = (
            ("remote.origin.url", self._origin.url),
            *self._origin.settings,
        )  # never written to a file
        settings += TREELESS if _leaves_gaps_alone(await self.git.version()) else ()
        git = Git(self.folder, self._limits, settings, self._origin.environment)
        return Fetch(git, refspec, self._origin.protocol, lock)


def _leaves_gaps_alone(version: tuple[int, ...]) -> bool:
    """Return whether this git obeys GIT_NO_LAZY_FETCH; older ones fork without end."""
    return version >= (2, 45, 1) or (2, 39, 4) <= version < (2, 40)


class Fetch(NamedTuple):
    """Fetches one ref from the origin."""

    git: Git
    refspec: str
    protocol: str
    lock: int

    async def __call__(self, *options: str) -> None:
        arguments = (*FETCH, *options, "origin", self.refspec)
        await self.git.output(*arguments, protocols=[self.protocol], kept_open=[self.lock])


def _open(path: Path) -> IO[bytes]:
    return path.open("ab")


def _lock(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
