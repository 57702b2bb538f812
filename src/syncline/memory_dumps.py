"""Keep keys and credentials out of memory dumps: no core file, and no other process may look."""

import ctypes
import sys

PR_SET_DUMPABLE = 4


def forbid_memory_dumps() -> None:
    """Let nobody but root read the memory and the environment of this process, from now on.

    For a process whose program we are; one that uses us as a library decides for itself. Programs
    that it starts can be looked at again: `exec` begins anew. They write no core files either.
    """
    if sys.platform == "win32":
        return
    import resource  # absent on Windows

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
