"""The home folder: SYNCLINE_HOME, or the platform's folder for user data."""

import os
import sys
from pathlib import Path

from syncline.errors import EmbeddedError


def resolve_home(home: Path | None = None) -> Path:
    """Return the absolute path of the home folder; it may not exist yet."""
    if sys.platform == "win32":
        raise EmbeddedError(
            "there is no embedded Postgres on Windows: set SYNCLINE_DATABASE_URL, or use WSL"
        )
    given = home or os.environ.get("SYNCLINE_HOME")
    try:
        return Path(given or _platform_folder() / "syncline").expanduser().resolve()
    except RuntimeError:
        raise EmbeddedError("this user has no home folder: set SYNCLINE_HOME") from None


def make_home(home: Path) -> None:
    """Create a missing home folder with mode 0700; leave an existing one as it is."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = home.stat().st_uid
    except OSError as error:
        raise EmbeddedError(
            f"cannot use {home} ({error.strerror}): set SYNCLINE_HOME to a folder of your own"
        ) from None
    if owner != os.geteuid():  # for root too: its files in there would lock the owner out
        raise EmbeddedError(
            f"{home} belongs to another user (uid {owner}): run as that user, "
            "or set SYNCLINE_HOME to a folder of your own"
        )


def _platform_folder() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support"
    configured = os.environ.get("XDG_DATA_HOME", "")
    # The specification says to ignore a relative path.
    return Path(configured) if os.path.isabs(configured) else Path.home() / ".local" / "share"
