"""Keep keys and credentials out of core files and away from other processes."""

import ctypes
import sys

PR_SET_DUMPABLE = 4


def forbid_memory_dumps() -> None:
    """Let only root read the memory and the environment of this process from now on.

    For our own processes; an application that uses the library decides for itself. `exec` resets
    this for programs that the process starts, but they write no core files either.
    """
    if sys.platform == "win32":
        return
    import resource  # absent on Windows

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
