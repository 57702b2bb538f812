"""Runs the git program: undisturbed by the caller's settings, told apart by its complaints."""

import asyncio
import os
import re
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from syncline.errors import Permanent, RateLimited, SyncError, Transient, Unauthorized

UNDISTURBED = {"core.hooksPath": os.devnull, "gc.autoDetach": "false"}
# The caller's other GIT_ variables, GIT_INDEX_FILE for one, speak of another repository.
INHERITED = ("GIT_SSH", "GIT_SSL", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")


class NoSuchRef(Permanent):
    """There is no commit at the ref that was asked for."""


# What git says, in the C locale, about failures that the usual retry will not cure.
COMPLAINTS: tuple[tuple[type[SyncError], str], ...] = (
    (RateLimited, "returned error: 429"),
    (Unauthorized, r"error: 40[13]|Auth\w+ failed|could not read [UP]|Permission denied \("),
    (NoSuchRef, "find remote ref"),
    (Permanent, "not (appear to be )?a git repository|epository.* not found|not exported"),
    (Permanent, "' not allowed|dubious owner|Host key verif|mismatched algo|error: 30[12378]"),
)


class Git(NamedTuple):
    """The program, on one folder; its settings travel in the environment, which others cannot see.

    Arguments can be seen by every user of a machine, and an address is handed on in them: it must
    hold no secrets by now.
    """

    folder: Path
    settings: tuple[tuple[str, str], ...] = ()

    async def __call__(
        self,
        *arguments: str,
        stdin: str = "",
        protocols: Iterable[str] = (),
        kept_open: Iterable[int] = (),
    ) -> str:
        """Run git and return what it printed, or raise what its complaint amounts to."""
        pipes: Any = dict.fromkeys(("stdin", "stdout", "stderr"), asyncio.subprocess.PIPE)
        try:
            process = await asyncio.create_subprocess_exec(
                "git",
                *arguments,
                env=self._environment(protocols),
                start_new_session=True,
                pass_fds=tuple(kept_open),
                **pipes,
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

    def _environment(self, protocols: Iterable[str]) -> dict[str, str]:
        names = [n for n in os.environ if not n.startswith("GIT_") or n.startswith(INHERITED)]
        settings = [*UNDISTURBED.items(), *self.settings]
        numbered = [
            pair
            for number, (name, value) in enumerate(settings)
            for pair in ((f"GIT_CONFIG_KEY_{number}", name), (f"GIT_CONFIG_VALUE_{number}", value))
        ]
        return {n: os.environ[n] for n in names} | {
            "LC_ALL": "C",
            "GIT_DIR": str(self.folder),  # named outright: no search in parents, no owner to match
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "",
            "SSH_ASKPASS_REQUIRE": "never",
            "GIT_NO_LAZY_FETCH": "1",
            # Reading allows none: to fetch what is missing, a repository may name any program.
            "GIT_ALLOW_PROTOCOL": ":".join(protocols),
            "GIT_CONFIG_COUNT": str(len(settings)),
            **dict(numbered),
        }


def _error(complaint: str) -> SyncError:
    """Return the error that says what to do next, without the secrets of an address."""
    message = re.sub(r"(?<=://)\S*@|\?\S*", "", " ".join(complaint.split()))[:500]
    kinds = (kind for kind, phrases in COMPLAINTS if re.search(phrases, complaint))
    return next(kinds, Transient)(message or "git ended without a word")
