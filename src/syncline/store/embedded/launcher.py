"""As whom Postgres runs: it refuses root, so root has to go by another name."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from syncline.errors import EmbeddedError
from syncline.store.embedded.binaries import ANSWER_SECONDS, Binaries

PASSED_ON = ("PATH", "HOME", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
WAY_OUT = "run as an ordinary user, or set SYNCLINE_DATABASE_URL"


@dataclass(frozen=True, slots=True)
class Launcher:
    """What to put before a command, and to whom the files it writes then belong."""

    prefix: tuple[str, ...]
    uid: int
    gid: int


def choose_launcher(binaries: Binaries, home: Path) -> Launcher:
    """Return how to run the programs so that they reach the home and do not see root."""
    if os.geteuid() != 0:
        return Launcher((), os.geteuid(), os.getegid())
    uid, gid = _nobody()
    for launcher in (_in_user_namespace(uid, gid), _without_root(uid, gid)):
        if _reaches(launcher, binaries, home):
            return launcher
    raise EmbeddedError(
        "Postgres refuses to run as root, and neither `unshare` nor `setpriv` (util-linux) "
        f"helps here: {WAY_OUT}"
    )


def take_over(data: Path, launcher: Launcher) -> None:
    """Make the launcher's user the owner of the data, if root used to run it the other way."""
    owner = data.stat().st_uid
    if owner == launcher.uid:
        return
    if os.geteuid() != 0 or owner not in (0, _nobody()[0]):
        raise EmbeddedError(
            f"{data} belongs to another user (uid {owner}): run as that user, "
            "or set SYNCLINE_HOME to a folder of your own"
        )
    for folder, _, files in os.walk(data):
        for path in (folder, *(os.path.join(folder, name) for name in files)):
            os.chown(path, launcher.uid, launcher.gid, follow_symlinks=False)


def environment() -> dict[str, str]:
    """Return what the programs get to see: no secrets of ours, no PG* variables, no locale."""
    passed_on = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return {**passed_on, "LC_ALL": "C", "TZ": "UTC"}


def _in_user_namespace(uid: int, gid: int) -> Launcher:
    """Root is nobody inside; on disk everything stays root's own."""
    mapping = (f"--map-user={uid}", f"--map-group={gid}")
    return Launcher(("unshare", "--user", *mapping, "--"), uid=0, gid=0)


def _without_root(uid: int, gid: int) -> Launcher:
    """Become nobody, keeping one right of root's; for containers that forbid namespaces.

    That right, to pass by file modes, lets the server reach programs and data in folders closed
    to others, so that nothing has to be copied and no folder opened up.
    """
    user = (f"--reuid={uid}", f"--regid={gid}", "--clear-groups")
    rights = ("--inh-caps=+dac_override", "--ambient-caps=+dac_override")
    # Without this bit access(2), by which Postgres looks for its programs, ignores the right.
    counted = ("--securebits=+no_setuid_fixup",)
    return Launcher(("setpriv", *user, *rights, *counted, "--"), uid, gid)


def _reaches(launcher: Launcher, binaries: Binaries, home: Path) -> bool:
    if shutil.which(launcher.prefix[0]) is None:
        return False
    probe = ["/bin/sh", "-c", 'cd "$0" && "$1" --version', str(home), binaries.path("postgres")]
    answer = subprocess.run(  # noqa: S603  (fixed words and paths of our own)
        [*launcher.prefix, *probe],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=ANSWER_SECONDS,
        check=False,
    )
    return answer.returncode == 0


def _nobody() -> tuple[int, int]:
    import pwd  # absent on Windows

    try:
        nobody = pwd.getpwnam("nobody")
    except KeyError:
        raise EmbeddedError(
            f"Postgres refuses to run as root, and there is no user `nobody` here: {WAY_OUT}"
        ) from None
    return nobody.pw_uid, nobody.pw_gid
