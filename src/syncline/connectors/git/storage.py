"""Where mirrors are kept: a folder for each connection, which goes with it."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from uuid import UUID

from syncline.model import Connection

GONE, NEW = "gone-", "new-"  # folders on their way out, and in


class MirrorStorage:
    """Folders named `<connection>-<digest of its tenant>`, each with one mirror.

    A mirror holds what one connection was allowed to fetch. Nothing of it is shared: another
    tenant, who knows the address but not the password, could read it otherwise.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def mirror_of(self, connection: Connection, url: str, ref: str) -> Path:
        """Return the folder of a connection's mirror, and remove those of its former config."""
        owner = self._folder / f"{connection.id.hex}-{_digest(connection.tenant_id)}"
        owner.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = _digest(f"{url} {ref}")
        for other in owner.iterdir():
            if other.name != name and not other.name.startswith(NEW):
                _remove(other)
        return owner / name

    def connection_ids(self) -> set[UUID]:
        """Return the connections that have a folder."""
        found = set()
        with suppress(FileNotFoundError):
            for name in os.listdir(self._folder):
                with suppress(ValueError):
                    found.add(UUID(hex=name.partition("-")[0]))
        return found

    def forget(self, connection_ids: Collection[UUID]) -> None:
        """Remove the folders of these connections, and what an earlier removal left."""
        for left in self._folder.glob(f"{GONE}*"):
            shutil.rmtree(left, ignore_errors=True)
        for connection_id in connection_ids:
            for folder in self._folder.glob(f"{connection_id.hex}-*"):
                _remove(folder)


def _remove(folder: Path) -> None:
    """Remove a folder; it loses its name first, so that nobody finds half of it."""
    with (
        suppress(OSError),
        tempfile.TemporaryDirectory(
            prefix=GONE, dir=folder.parent, ignore_cleanup_errors=True
        ) as gone,
    ):
        folder.rename(Path(gone, "folder"))
    shutil.rmtree(folder, ignore_errors=True)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
