"""The commits of any git repository, read with the git program."""

import asyncio
import hashlib
import os
import re
import signal
import tempfile
from collections.abc import Collection, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from syncline.errors import Permanent, RateLimited, SyncError, Transient, Unauthorized
from syncline.model import Connection, Signal, SyncResult
from syncline.sdk.connector import Connector

PROTOCOLS = ("file", "git", "http", "https", "ssh")
MAX_TIPS = 500  # keeps a cursor within 35 kB even with SHA-256 names
COMMIT_NAME = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
REF_NAME = re.compile(r"(?!-)(?!.*(?:\.\.|@\{))[^\x00-\x20~^:?*\[\\\x7f]+")
FIELDS = ("%H", "%P", "%ct", "%at", "%an", "%ae", "%s", "%b")
LAYOUT = f"--format={'%x00'.join((*FIELDS, ''))}"
UNDISTURBED = ("-c", f"core.hooksPath={os.devnull}", "-c", "gc.autoDetach=false")
TREELESS = ("-c", "remote.origin.promisor=true", "-c", "remote.origin.partialCloneFilter=tree:0")
FETCH = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--update-shallow", "origin")
# The caller's other GIT_ variables, GIT_INDEX_FILE for one, speak of another repository.
INHERITED = ("GIT_SSH", "GIT_SSL", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")
# Git takes any number for a date; from 0001-01-02 to 9999-12-30 it can be shown in every zone.
EARLIEST, LATEST = -62_135_510_400, 253_402_128_000
# What git says, in the C locale, about failures that the usual retry will not cure.
COMPLAINTS: tuple[tuple[type[SyncError], str], ...] = (
    (RateLimited, "returned error: 429"),
    (Unauthorized, r"error: 40[13]|Auth\w+ failed|could not read [UP]|Permission denied \("),
    (Permanent, "not (appear to be )?a git repository|epository.* not found|not exported"),
    (Permanent, "find remote ref|' not allowed|dubious owner|Host key verif|mismatched algo"),
)


class GitCommits(Connector):
    """Syncs one branch, oldest commit first.

    Config: `url`, a folder or an address; `branch`, a branch or a full ref name (default: HEAD);
    `page_size` (default 100). The cursor holds the tips of what was seen: parents are sent before
    their children, so what the tips do not reach is exactly what is left, however late it was
    merged. `until` pins the newest commit while the pages of one run follow each other.
    """

    provider = "git"

    def __init__(self, cache_folder: Path | None = None) -> None:
        home = os.environ.get("SYNCLINE_HOME") or os.path.expanduser("~/.cache/syncline")
        self._mirrors = cache_folder or Path(home, "git-mirrors")

    async def sync(self, connection: Connection, cursor: Any) -> SyncResult:
        url, ref, page_size = _parse_config(connection.config)
        last_seen, until = _parse_cursor(cursor)
        repository = await self._open(url)
        pinned = await repository.find([until]) if until else []
        head = pinned[0] if pinned else await repository.newest(ref, reader=connection.id.hex)
        if head is None or last_seen == [head]:
            return SyncResult(next_cursor=cursor)

        seen, signals = await repository.find(last_seen), []
        unseen, met = await repository.survey(head, seen)
        if not met.issuperset(last_seen):  # some of what was seen no longer leads to the head
            seen = sorted(met)
            signals.append(_history_rewritten(last_seen, seen, *await repository.read([head])))
        page = await repository.read(unseen[:page_size])
        while len(_tips(seen, page)) > MAX_TIPS and len(page) < len(unseen):
            page_size *= 2  # rare; further commits join the many branches
            page = await repository.read(unseen[:page_size])
        if len(page) == len(unseen):
            return SyncResult(signals + page, {"seen": [head]})
        return SyncResult(signals + page, {"seen": _tips(seen, page), "until": head}, has_more=True)

    async def _open(self, url: str) -> "Repository":
        """Return the repository in a folder, or the mirror that stands for an address."""
        if "://" not in url and not re.match("[^/]+:", url):
            return Repository(_git_folder(url))
        mirror = self._mirrors / hashlib.sha256(url.encode()).hexdigest()[:32]
        if not (mirror / "HEAD").exists():
            self._mirrors.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=self._mirrors) as workshop:
                draft = Path(workshop, "mirror")
                await Repository(draft).git("init", "--quiet", "--bare", "--template=")
                with suppress(OSError):  # another run was first, and its mirror is as good
                    os.rename(draft, mirror)
        return Repository(mirror, origin=url)


class Repository(NamedTuple):
    """A git folder; where it has an origin, the mirror of that address."""

    folder: Path
    origin: str | None = None

    async def newest(self, ref: str, *, reader: str) -> str | None:
        """Return the commit that `ref` names now, or None where nothing was ever committed."""
        if self.origin is None:
            found = await self.find([ref])
            if not found and await self.git("for-each-ref", "--count=1"):
                raise Permanent(f"config.branch: there is no commit at {ref}")
            return found[0] if found else None
        mirrored = f"refs/syncline/{reader}"  # its own, so that no two connections contend for one
        origin = ["-c", f"remote.origin.url={self.origin}"]  # kept in no file
        origin += TREELESS if await self._leaves_gaps_alone() else ()
        try:
            await self.git(*origin, *FETCH, f"+{ref}:{mirrored}", protocols=PROTOCOLS)
        except Permanent:
            if await self.git(*origin, "ls-remote", "origin", protocols=PROTOCOLS):
                raise
            return None
        return (await self.find([mirrored]))[0]

    async def _leaves_gaps_alone(self) -> bool:
        """Return whether it heeds GIT_NO_LAZY_FETCH; else a shallow server makes it fork on."""
        version = tuple(map(int, re.findall(r"\d+", await self.git("version"))[:3]))
        return version >= (2, 45, 1) or (2, 39, 4) <= version < (2, 40)

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

    async def git(self, *arguments: str, stdin: str = "", protocols: Iterable[str] = ()) -> str:
        """Run git and return what it printed, or raise what its complaint amounts to."""
        pipes: Any = dict.fromkeys(("stdin", "stdout", "stderr"), asyncio.subprocess.PIPE)
        env = _environment(self.folder, protocols)
        try:
            process = await asyncio.create_subprocess_exec(
                "git", *UNDISTURBED, *arguments, env=env, start_new_session=True, **pipes
            )
        except FileNotFoundError:
            raise Permanent("the git program was not found: install git on this machine") from None
        try:
            printed, complaint = await process.communicate(stdin.encode())
        finally:
            if process.returncode is None:  # cancelled: its children (ssh, index-pack) go with it
                for ending in (signal.SIGTERM, signal.SIGKILL):  # at first it may unlock its files
                    with suppress(ProcessLookupError, TimeoutError):
                        os.killpg(process.pid, ending)
                        await asyncio.wait_for(process.communicate(), timeout=2)
        if process.returncode:
            raise _error(complaint.decode(errors="replace"))
        return printed.decode(errors="replace")


def _environment(folder: Path, protocols: Iterable[str]) -> dict[str, str]:
    names = [n for n in os.environ if not n.startswith("GIT_") or n.startswith(INHERITED)]
    return {n: os.environ[n] for n in names} | {
        "LC_ALL": "C",
        "GIT_DIR": str(folder),  # named outright: no search in parent folders, no owner to match
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "",
        "SSH_ASKPASS_REQUIRE": "never",
        "GIT_NO_LAZY_FETCH": "1",
        # Reading allows none: to fetch what is missing, a repository may name any program.
        "GIT_ALLOW_PROTOCOL": ":".join(protocols),
    }


def _error(complaint: str) -> SyncError:
    """Return the error that says what to do next, without the secrets of an address."""
    message = re.sub(r"(?<=://)\S*@|\?\S*", "", " ".join(complaint.split()))[:500]
    kinds = (kind for kind, phrases in COMPLAINTS if re.search(phrases, complaint))
    return next(kinds, Transient)(message or "git ended without a word")


def _commit_signal(*fields: str) -> Signal:
    heading, parents, committed, authored, author, email, subject, body = fields
    sha = heading.split()[-1]  # on the line below the heading that git gives each commit
    payload = {
        "sha": sha,
        "parents": parents.split(),
        "author": author[:500],
        "email": email[:500],
        "authored_at": _instant(authored).isoformat(),
        "subject": subject[:1_000],
        "body": body.strip()[:20_000],
    }
    return Signal("commit", _instant(committed), payload, dedupe_key=sha)


def _instant(seconds: str) -> datetime:
    """Return the time of a date as git prints it; the epoch, where it could make out none."""
    return datetime.fromtimestamp(min(max(int(seconds or 0), EARLIEST), LATEST), UTC)


def _history_rewritten(last_seen: list[str], met: list[str], head: Signal) -> Signal:
    payload = {"last_seen": last_seen, "continued_from": met, "head": head.dedupe_key}
    key = f"history_rewritten:{last_seen[0]}:{head.dedupe_key}"
    return Signal("history_rewritten", head.occurred_at, payload, dedupe_key=key)


def _tips(seen: Collection[str], page: Iterable[Signal]) -> list[str]:
    """Return the commits, seen before or on this page, that have no child among them."""
    tips = set(seen)
    for commit in page:  # parents first
        tips = tips.difference(commit.payload["parents"]) | {commit.payload["sha"]}
    return sorted(tips)


def _parse_config(config: Any) -> tuple[str, str, int]:
    """Return the url, the full name of the ref and the page size."""
    fields: dict[str, Any] = config if isinstance(config, dict) else {}
    url, branch = fields.get("url"), fields.get("branch", "HEAD")
    if not isinstance(url, str) or not url.isprintable() or url[:1] in ("", "-"):
        raise Permanent("config.url: expected the path or the URL of a git repository")
    if not isinstance(branch, str) or not REF_NAME.fullmatch(branch):
        raise Permanent("config.branch: expected the name of a branch")
    page_size = fields.get("page_size", 100)
    if type(page_size) is not int or not 1 <= page_size <= 5_000:
        raise Permanent("config.page_size: expected an integer from 1 to 5000")
    return url, branch if re.match("HEAD$|refs/", branch) else f"refs/heads/{branch}", page_size


def _parse_cursor(cursor: Any) -> tuple[list[str], str | None]:
    """Return the tips of what was seen, and the commit that the pages lead up to."""
    fields: dict[str, Any] = cursor if isinstance(cursor, dict) else {"seen": cursor or []}
    seen, until = fields.get("seen", []), fields.get("until")
    names = [*seen, *filter(None, [until])] if isinstance(seen, list) else [seen]
    if not all(COMMIT_NAME.fullmatch(str(name)) for name in names):
        raise Permanent('cursor: expected {"seen": [full commit names]}')
    return seen, until


def _git_folder(path: str) -> Path:
    folder = os.path.abspath(os.path.expanduser(path))
    if not os.path.isdir(folder):
        raise Permanent(f"config.url: there is no folder {folder}")
    return Path(folder, ".git" if os.path.exists(os.path.join(folder, ".git")) else "")
