"""Where mirrors are stored: one folder per connection, removed with it."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from uuid import UUID

from syncline.model import Connection

GONE, NEW = "gone-", "new-"  # prefixes of folders being removed, and being created


class MirrorStorage:
    """Folders named `<connection>-<digest of its tenant>`, each with one mirror.

    A mirror has what one connection was allowed to fetch. Mirrors are never shared: a tenant that
    knows the URL but not the password could read another's.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def mirror_of(self, connection: Connection, url: str, ref: str) -> Path:
        """Return the folder of a connection's mirror; remove those of its earlier configs."""
        owner = self._folder / f"{connection.id.hex}-{_digest(connection.tenant_id)}"
        owner.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = _digest(f"{url} {ref}")
        for other in owner.iterdir():
            if other.name != name and not other.name.startswith(NEW):
                _remove(other)
        return owner / name

    def connection_ids(self) -> set[UUID]:
        """Return the ids of connections that have a folder."""
        found = set()
        with suppress(FileNotFoundError):
            for name in os.listdir(self._folder):
                with suppress(ValueError):
                    found.add(UUID(hex=name.partition("-")[0]))
        return found

    def forget(self, connection_ids: Collection[UUID]) -> None:
        """Remove the folders of these connections, and the remains of earlier removals."""
        for left in self._folder.glob(f"{GONE}*"):
            shutil.rmtree(left, ignore_errors=True)
        for connection_id in connection_ids:
            for folder in self._folder.glob(f"{connection_id.hex}-*"):
                _remove(folder)


def _remove(folder: Path) -> None:
    """Rename a folder, then remove it, so that no run finds half of it."""
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
