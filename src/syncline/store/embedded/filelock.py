"""A file lock that the kernel releases when its last holder dies."""

import os
from pathlib import Path
from types import TracebackType
from typing import Self


class FileLock:
    """An open file to lock; a child process that inherits it holds the lock as well."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def fileno(self) -> int:
        return self._descriptor

    def try_exclusive(self) -> bool:
        """Try to take the lock exclusively; return whether that worked."""
        return self._try(exclusive=True)

    def try_shared(self) -> bool:
        """Try to share the lock; return whether that worked."""
        return self._try(exclusive=False)

    def close(self) -> None:
        """Close the file. This releases the lock unless a child inherited it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _try(self, *, exclusive: bool) -> bool:
        import fcntl  # absent on Windows

        mode = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
        try:
            fcntl.flock(self._descriptor, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
