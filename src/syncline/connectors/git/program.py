"""Run the git program with only our configuration, and turn its messages into SDK errors."""

import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from syncline.children.limits import ChildLimits
from syncline.children.process import Finished, Printing, ProgramNotFound, run, start_printing
from syncline.errors import Permanent, RateLimited, SyncError, Transient, Unauthorized
from syncline.redaction import strip_addresses

MINIMUM_VERSION = (2, 37)  # the first with http.curloptResolve, which pins the address
MAX_OUTPUT = 256 * 2**20  # six million commit names
READ_AHEAD = 2**20  # bytes of a stream, so that git continues while a page is being stored
MAX_COMPLAINT = 4_000
MAX_MESSAGE = 500
NOT_FOUND = "the git program was not found; install git on this machine"
Pairs = tuple[tuple[str, str], ...]

# No repository and no user's configuration may change these.
ALWAYS: Pairs = (
    ("core.hooksPath", os.devnull),
    ("core.fsmonitor", "false"),
    ("core.askPass", ""),
    ("credential.helper", ""),  # an empty value removes all helpers
    ("protocol.allow", "never"),  # GIT_ALLOW_PROTOCOL names the exceptions
    ("http.followRedirects", "false"),  # redirects and alternates could lead anywhere
    ("http.emptyAuth", "false"),  # otherwise a server could get this user's Kerberos ticket
    ("transfer.bundleURI", "false"),
    ("http.lowSpeedLimit", "1"),  # bytes a second, for lowSpeedTime seconds: a silent server
    ("http.lowSpeedTime", "120"),  # must not block a process whose worker was killed
    ("gc.autoDetach", "false"),
    # A pack larger than the memory limit is read one window at a time.
    ("core.packedGitWindowSize", "16m"),
    ("core.packedGitLimit", "128m"),
    ("core.deltaBaseCacheLimit", "32m"),
    ("core.bigFileThreshold", "16m"),
    ("pack.threads", "1"),
    ("pack.windowMemory", "64m"),
    ("pack.deltaCacheSize", "64m"),
)


class NoSuchRef(Permanent):
    """There is no commit at the requested ref."""


class OutOfTime(Transient):
    """Git used all the processor time that one process may use; its output so far is good."""


# What git prints, in the C locale, about failures that a retry does not fix.
COMPLAINTS: tuple[tuple[type[SyncError], tuple[str, ...]], ...] = (
    (RateLimited, ("returned error: 429",)),
    (
        Unauthorized,
        (
            "returned error: 401",
            "returned error: 403",
            "Authentication failed",
            "could not read Username",
            "could not read Password",
            "Permission denied (",
        ),
    ),
    (NoSuchRef, ("find remote ref",)),
    (
        Permanent,
        (
            "not a git repository",
            "not appear to be a git repository",
            "Repository not found",
            "' not found",
            "not exported",
            "' not allowed",
            "Host key verif",
            "mismatched algo",
            *(f"returned error: {status}" for status in (301, 302, 303, 307, 308)),
        ),
    ),
)


class Git(NamedTuple):
    """The git program, run on one folder; its settings are passed in the environment.

    Every user of the machine can see arguments, and the URL is one of them, so it must have no
    secrets.
    """

    folder: Path
    limits: ChildLimits = ChildLimits()
    settings: Pairs = ()
    environment: Pairs = ()

    async def __call__(self, *arguments: str, stdin: str = "") -> str:
        """Run git offline and return its short output as text."""
        return (await self.output(*arguments, stdin=stdin)).decode(errors="replace")

    async def output(
        self,
        *arguments: str,
        stdin: str = "",
        protocols: Iterable[str] = (),
        kept_open: Iterable[int] = (),
        most: int = MAX_OUTPUT,
    ) -> bytes:
        """Run git and return its output, or raise the error that its message means."""
        try:
            finished = await run(
                ("git", *arguments),
                environment=self._environment(protocols),
                limits=self.limits,
                stdin=stdin.encode(),
                pass_fds=kept_open,
                max_output=most,
            )
        except ProgramNotFound:
            raise Permanent(NOT_FOUND) from None
        return _check(finished).output

    @asynccontextmanager
    async def stream(self, *arguments: str, stdin: bytes) -> AsyncIterator["GitStream"]:
        """Run git offline and yield its output as a stream; git ends with the block."""
        try:
            async with start_printing(
                ("git", *arguments),
                environment=self._environment(()),
                limits=self.limits,
                stdin=stdin,
                max_line=READ_AHEAD,
            ) as printing:
                yield GitStream(printing)
        except ProgramNotFound:
            raise Permanent(NOT_FOUND) from None

    async def version(self) -> tuple[int, ...]:
        """Return git's version; refuse one that cannot be pinned to an address."""
        words = (await self("version")).split()
        numbers = words[2].split(".") if len(words) > 2 else []
        version = tuple(int(number) for number in numbers[:3] if number.isdecimal())
        if version < MINIMUM_VERSION:
            needed = ".".join(map(str, MINIMUM_VERSION))
            raise Permanent(
                f"git {'.'.join(numbers[:3])} is too old; install {needed} or newer, "
                "which can be pinned to a checked address"
            )
        return version

    def _environment(self, protocols: Iterable[str]) -> dict[str, str]:
        settings = (*ALWAYS, *self.settings)
        numbered = [
            pair
            for number, (name, value) in enumerate(settings)
            for pair in ((f"GIT_CONFIG_KEY_{number}", name), (f"GIT_CONFIG_VALUE_{number}", value))
        ]
        return {
            "LC_ALL": "C",
            "GIT_DIR": str(self.folder),  # explicit: no search in parents, no owner check
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "",
            "SSH_ASKPASS_REQUIRE": "never",
            "GIT_NO_LAZY_FETCH": "1",
            # Reading allows none: a repository may name any program to fetch missing objects.
            "GIT_ALLOW_PROTOCOL": ":".join(protocols),
            "GIT_CONFIG_COUNT": str(len(settings)),
            **_certificates(),
            **dict(numbered),
            **dict(self.environment),
        }


class GitStream(NamedTuple):
    """The output of a running git."""

    printing: Printing

    async def read(self) -> bytes:
        """Return some more output, or nothing at its end; raise if git failed."""
        piece = await self.printing.read(READ_AHEAD)
        if not piece:
            _check(await self.printing.finish())
        return piece


def _check(finished: Finished) -> Finished:
    """Return what has finished well, or raise the error that git's message means."""
    if finished.is_out_of_time:
        raise OutOfTime(f"git was stopped: {finished.error_output.decode()}")
    if finished.code:
        raise _error(finished.error_output)
    return finished


def _certificates() -> dict[str, str]:
    """Return the operator's certificate authorities, under git's own variable names."""
    names = {"GIT_SSL_CAINFO": "SSL_CERT_FILE", "GIT_SSL_CAPATH": "SSL_CERT_DIR"}
    return {ours: os.environ[name] for ours, name in names.items() if os.environ.get(name)}


def _error(complaint: bytes) -> SyncError:
    """Return the SDK error for git's message, without secrets and without the server's text."""
    said = _own_words(complaint)
    kinds = (kind for kind, phrases in COMPLAINTS if any(phrase in said for phrase in phrases))
    return next(kinds, Transient)(strip_addresses(said, MAX_MESSAGE) or "git gave no reason")


def _own_words(complaint: bytes) -> str:
    """Return git's own last message; what it quotes from a server begins with `remote:`."""
    text = complaint[-MAX_COMPLAINT:].decode(errors="replace").replace("\r", "\n")
    lines = text.split("\n")
    if len(complaint) > MAX_COMPLAINT:
        del lines[0]  # its beginning, which says who wrote it, was cut off
    own = " ".join(line for line in lines if not line.startswith("remote:"))
    return " ".join("".join(c if c.isprintable() else " " for c in own).split())
