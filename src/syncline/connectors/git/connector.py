"""The git connector: pages of commits that the cursor has not seen."""

import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, NamedTuple
from uuid import UUID

from syncline.children.process import private_folder
from syncline.connectors.git.commits import instant
from syncline.connectors.git.local import build_view, find_folders, path_of
from syncline.connectors.git.mirror import Mirror, Pace, StillFetching
from syncline.connectors.git.origin import GitAccess, find_origin, parse_url
from syncline.connectors.git.program import NoSuchRef, OutOfTime
from syncline.connectors.git.repository import COMMIT_NAME, CommitReader, Repository
from syncline.connectors.git.storage import MirrorStorage
from syncline.errors import Permanent, Transient
from syncline.model import Connection, Signal, SyncResult
from syncline.sdk.connector import Connector

MAX_TIPS = 500  # keeps a cursor below 35 kB even with SHA-256 names
MAX_PAGE_BYTES = 64_000_000  # of commits as git stores them
MAX_URL = 2_000
MAX_BRANCH = 255
REF_NAME = re.compile(r"(?!-)(?!.*(?:\.\.|@\{))[^\x00-\x20~^:?*\[\\\x7f]+")
CONFIG_SCHEMA = {
    "type": "object",
    "required": ["url"],
    "properties": {
        "url": {
            "type": "string",
            "title": "URL",
            "description": "An https URL, or a folder that the operator allows.",
            "minLength": 1,
            "maxLength": MAX_URL,
            "pattern": r"^[^\x00-\x1f\x7f]*$",
        },
        "branch": {
            "type": "string",
            "title": "Branch",
            "minLength": 1,
            "maxLength": MAX_BRANCH,
            "pattern": r"^[^\x00-\x20~^:?*\[\\\x7f-][^\x00-\x20~^:?*\[\\\x7f]*$",
            "not": {"pattern": r"\.\.|@\{"},
            "default": "HEAD",
        },
        "page_size": {
            "type": "integer",
            "title": "Page size",
            "minimum": 1,
            "maximum": 5000,
            "default": 1000,
        },
    },
}
BY_HAND = GitAccess(local_roots=(Path("/"),), schemes=("git", "ssh"))  # all that this user may


class GitCommits(Connector):
    """Syncs one branch, oldest commit first.

    Config: `url`, an https URL, or a folder inside the roots that the operator allows; `branch`, a
    branch or a full ref name (default: HEAD); `page_size` (default 1000). Credentials, for http
    and https: `token`, or `username` and `password`.

    The cursor has the tips of what was seen. Parents come before their children, so exactly the
    commits that the tips do not reach are left, however late they were merged. `until` pins the
    newest commit until all its ancestors were seen, also if that takes several runs.
    """

    provider = "git"
    title = "Git repository"
    auth = ("none", "token", "basic", "oauth2", "oauth2_grant", "headers", "ssh_key")
    config_schema = CONFIG_SCHEMA
    local: ClassVar[bool] = True
    runs_programs: ClassVar[bool] = True
    settings_name: ClassVar[str | None] = "git"

    def __init__(
        self,
        cache_folder: Path | None = None,
        pace: Pace | None = None,
        *,
        local_roots: Iterable[Path] = (),
    ) -> None:
        self._cache_folder = cache_folder
        self._pace = pace or Pace()
        self._own_roots = tuple(local_roots)
        self._access = GitAccess()

    def configure(self, settings: Any) -> None:
        self._access = BY_HAND
        if settings is not None:
            self._access = GitAccess(
                local_roots=tuple(settings.local_roots),
                schemes=tuple(settings.schemes),
                known_hosts=settings.known_hosts,
            )

    def why_not_for_tenants(self) -> str | None:
        """Return why tenants could reach what belongs to the operator."""
        if self._own_roots or self._access.local_roots or self._access.schemes:
            return "git.local_roots and git.schemes allow access that tenants must not have"
        return None

    def connections_with_files(self) -> Collection[UUID]:
        return self._storage().connection_ids()

    def forget(self, connection_ids: Collection[UUID]) -> None:
        self._storage().forget(connection_ids)

    async def sync(self, connection: Connection, cursor: Any) -> AsyncGenerator[SyncResult, None]:
        config, place = _parse_config(connection.config), Place.from_json(cursor)
        async with self._open(connection, config) as repository:
            try:
                head = await _find_head(repository, config.ref, place)
            except StillFetching as progress:
                yield _wait_for_mirror(place, progress.commits)
                return
            if head is None:
                yield await _branch_deleted(repository, config.ref, place)
                return
            async with aclosing(_pages(repository, head, place, config.page_size)) as pages:
                async for page in pages:
                    yield page

    @asynccontextmanager
    async def _open(self, connection: Connection, config: "Config") -> AsyncIterator[Repository]:
        """Yield the repository in a folder, or the mirror of a URL."""
        limits, path = self.child_limits, path_of(config.url)
        with private_folder() as folder:
            if path is not None:
                folders = find_folders(path, (*self._own_roots, *self._access.local_roots))
                yield Repository(await build_view(folders, folder, limits), limits)
                return
            origin = await find_origin(
                parse_url(config.url),
                connection.credentials,
                self._access,
                self.http_environment,
                folder,
            )
            place = self._storage().mirror_of(connection, config.url, config.ref)
            mirror = Mirror(place, origin, self._pace.within(limits.cpu_seconds), limits)
            await mirror.make()
            yield mirror

    def _storage(self) -> MirrorStorage:
        home = os.environ.get("SYNCLINE_HOME") or os.path.expanduser("~/.cache/syncline")
        return MirrorStorage(self._cache_folder or self.state_folder or Path(home, "git-mirrors"))


async def _find_head(repository: Repository, ref: str, place: "Place") -> str | None:
    """Return the newest commit to read, or None if there is none or the branch was deleted."""
    pinned = await repository.find([place.until]) if place.until else []
    if pinned:
        return pinned[0]
    try:
        return await repository.newest(ref)
    except NoSuchRef:
        if not place.seen:
            raise
        return None


def _wait_for_mirror(place: "Place", commits: int) -> SyncResult:
    """Return an empty page, after which another run continues the first fetch."""
    if commits == place.mirrored:
        raise Transient("no commit arrived during a whole run; the server may be too slow")
    return SyncResult(next_cursor=place._replace(mirrored=commits).to_json(), has_more=True)


async def _pages(
    repository: Repository, head: str, place: "Place", page_size: int
) -> AsyncGenerator[SyncResult, None]:
    """Yield the commits between what was seen and the head, all from one walk."""
    if place.seen == [head]:
        yield SyncResult(next_cursor=Place([head]).to_json())
        return
    seen, signals = await repository.find(place.seen), []
    unseen = await repository.survey(head, seen)
    if not unseen.boundary.issuperset(place.seen):  # the head no longer contains some seen commits
        seen = sorted(unseen.boundary)
        signals = [await _history_rewritten(repository, head, place.seen, seen)]
    if not unseen:
        yield SyncResult(signals, Place([head]).to_json())
        return
    tips = set(seen)
    async with repository.reader(unseen) as reader:
        while reader.left and (page := await _take_page(reader, tips, page_size)):
            reached = Place(sorted(tips), until=head) if reader.left else Place([head])
            yield SyncResult(signals + page, reached.to_json(), has_more=reader.left > 0)
            signals = []


async def _take_page(reader: CommitReader, tips: set[str], page_size: int) -> list[Signal]:
    """Return the next page, and bring the tips of what was seen up to date.

    In rare cases the page is longer: further commits merge branches, so the cursor gets shorter.
    The page is empty if git's time is over. The page before it has more, so another run continues.
    """
    taken_before, page = reader.taken_bytes, list[Signal]()
    while not page or (len(tips) > MAX_TIPS and reader.left):
        try:
            commits = await reader.take(max(page_size, len(page)))
        except OutOfTime:
            if not taken_before:  # another run would not get any further
                raise
            return []
        _move_tips(tips, commits)
        page += commits
        if reader.taken_bytes - taken_before > MAX_PAGE_BYTES:
            raise Permanent(
                f"the history has more than {MAX_TIPS} parallel branches with very large commits"
            )
    return page


async def _branch_deleted(repository: Repository, ref: str, place: "Place") -> SyncResult:
    """Return a page that reports a deleted branch once; the branch may come back."""
    if not place.seen or place.is_deleted:
        return SyncResult(next_cursor=place.to_json() if place.seen else None)
    last = await repository.read((await repository.find(place.seen))[:1])
    gone = Signal(
        "branch_deleted",
        last[0].occurred_at if last else instant("0"),
        {"ref": ref, "last_seen": place.seen},
        dedupe_key=f"branch_deleted:{place.seen[0]}",
    )
    return SyncResult([gone], Place(place.seen, is_deleted=True).to_json())


class Place(NamedTuple):
    """Where a connection left off."""

    seen: list[str]
    until: str | None = None
    mirrored: int | None = None
    is_deleted: bool = False

    @classmethod
    def from_json(cls, cursor: Any) -> "Place":
        fields: dict[str, Any] = cursor if isinstance(cursor, dict) else {"seen": cursor or []}
        seen, until = fields.get("seen", []), fields.get("until")
        names = [*seen, *filter(None, [until])] if isinstance(seen, list) else [seen]
        if not all(COMMIT_NAME.fullmatch(str(name)) for name in names):
            raise Permanent('cursor: expected {"seen": [full commit names]}')
        return cls(seen, until, fields.get("mirrored"), fields.get("deleted") is True)

    def to_json(self) -> dict[str, Any]:
        more = {"until": self.until, "mirrored": self.mirrored, "deleted": self.is_deleted or None}
        return {"seen": self.seen, **{n: v for n, v in more.items() if v is not None}}


class Config(NamedTuple):
    url: str
    ref: str
    page_size: int


async def _history_rewritten(
    repository: Repository, head: str, last_seen: list[str], continued_from: list[str]
) -> Signal:
    (newest,) = await repository.read([head])
    payload = {"last_seen": last_seen, "continued_from": continued_from, "head": head}
    key = f"history_rewritten:{last_seen[0]}:{head}"
    return Signal("history_rewritten", newest.occurred_at, payload, dedupe_key=key)


def _move_tips(tips: set[str], commits: Iterable[Signal]) -> None:
    """Keep in `tips` the seen commits, including these, that have no child among them."""
    for commit in commits:  # parents first
        tips.difference_update(commit.payload["parents"])
        tips.add(commit.payload["sha"])


def _parse_config(config: Any) -> Config:
    fields: dict[str, Any] = config if isinstance(config, dict) else {}
    url, branch = fields.get("url"), fields.get("branch", "HEAD")
    if not isinstance(url, str) or not url.isprintable() or not 0 < len(url) <= MAX_URL:
        raise Permanent("config.url: expected the path or the URL of a git repository")
    if not isinstance(branch, str) or len(branch) > MAX_BRANCH or not REF_NAME.fullmatch(branch):
        raise Permanent("config.branch: expected the name of a branch")
    page_size = fields.get("page_size", 1_000)
    if type(page_size) is not int or not 1 <= page_size <= 5_000:
        raise Permanent("config.page_size: expected an integer from 1 to 5000")
    ref = branch if re.match("HEAD$|refs/", branch) else f"refs/heads/{branch}"
    return Config(url, ref, page_size)
