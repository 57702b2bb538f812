"""Which user Postgres runs as: it refuses root, so root starts it as another user."""

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
    """The prefix of a command, and the owner of the files that it writes."""

    prefix: tuple[str, ...]
    uid: int
    gid: int


def choose_launcher(binaries: Binaries, home: Path) -> Launcher:
    """Return a way to run the programs: they reach the home and do not run as root."""
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
    """Make the launcher's user the owner of data that root used with another launcher."""
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
    """Return the programs' environment: no secrets, no PG* variables, no locale."""
    passed_on = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return {**passed_on, "LC_ALL": "C", "TZ": "UTC"}


def _in_user_namespace(uid: int, gid: int) -> Launcher:
    """Return a launcher in which root looks like `nobody`; files still belong to root."""
    mapping = (f"--map-user={uid}", f"--map-group={gid}")
    return Launcher(("unshare", "--user", *mapping, "--"), uid=0, gid=0)


def _without_root(uid: int, gid: int) -> Launcher:
    """Return a launcher that becomes `nobody`, for containers that forbid namespaces.

    It keeps one capability of root, to ignore file modes. So the server reaches programs and data
    in private folders, and nothing has to be copied or opened up.
    """
    user = (f"--reuid={uid}", f"--regid={gid}", "--clear-groups")
    rights = ("--inh-caps=+dac_override", "--ambient-caps=+dac_override")
    # Postgres finds its programs by access(2), which ignores the capability without this bit.
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
