"""Files with customers' data, which only their owner can read from the first byte on."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkstemp
from typing import TextIO


@contextmanager
def completed_file(path: Path) -> Iterator[Path]:
    """Yield a temporary file that is renamed to `path` at the end, or removed after an error.

    A process that has an older file of that name open keeps reading the older one.
    """
    _refuse_special(path)
    descriptor, name = mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.", suffix=".part")
    os.close(descriptor)  # its mode is 0600 with any umask
    part = Path(name)
    try:
        yield part
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def create_file(path: Path) -> TextIO:
    """Open a new text file for writing, replacing one of that name."""
    _refuse_special(path)
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    return os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape")


def _refuse_special(path: Path) -> None:
    """Refuse to replace a link or a device, such as /dev/stdout."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        raise OSError(None, "it is not a regular file", str(path))
