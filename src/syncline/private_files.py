"""Files with customers' data: nobody but their owner may read them, from their first byte on."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkstemp
from typing import TextIO


@contextmanager
def completed_file(path: Path) -> Iterator[Path]:
    """Lend a file beside `path`, which takes that name at the end; after an error nothing is left.

    Whoever had opened an older file of that name goes on reading the older one.
    """
    _refuse_special(path)
    descriptor, name = mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.", suffix=".part")
    os.close(descriptor)  # its mode is 0600, whatever the umask says
    part = Path(name)
    try:
        yield part
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def create_file(path: Path) -> TextIO:
    """Return a new file to write text into; one of that name is replaced."""
    _refuse_special(path)
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    return os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape")


def _refuse_special(path: Path) -> None:
    """Refuse to put a file in the place of a link or a device, such as /dev/stdout."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        raise OSError(None, "it is no regular file", str(path))
