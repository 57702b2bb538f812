"""Prepare a child process, then become the program: launcher.py NAME=NUMBER… -- PROGRAM [ARG…].

It runs in an interpreter without packages. Code between fork and exec (`preexec_fn`) can deadlock
in a process that has threads; a script that replaces itself cannot.
"""

import ctypes
import os
import resource
import signal
import sys

PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38
LIMITS = {
    "memory": resource.RLIMIT_AS,
    "cpu": resource.RLIMIT_CPU,
    "file": resource.RLIMIT_FSIZE,
    "core": resource.RLIMIT_CORE,
}
CPU_GRACE_SECONDS = 5  # between SIGXCPU, which a program may handle, and SIGKILL


def main(options: dict[str, int], program: list[str]) -> None:
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        if os.getppid() != options["parent"]:
            sys.exit("the process that started this program has ended")
    os.umask(0o077)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them
        signal.signal(number, signal.SIG_DFL)
    for name, kind in LIMITS.items():
        if name in options:
            _limit(kind, options[name])
    os.execv(program[0], program)  # noqa: S606  (the caller chose the program)


def _limit(kind: int, wanted: int) -> None:
    """Set a limit, unless the current one is lower."""
    _, highest = resource.getrlimit(kind)
    hard = wanted + CPU_GRACE_SECONDS if kind == resource.RLIMIT_CPU else wanted
    if highest != resource.RLIM_INFINITY:
        wanted, hard = min(wanted, highest), min(hard, highest)
    resource.setrlimit(kind, (wanted, hard))


if __name__ == "__main__":
    end = sys.argv.index("--")
    main(
        {name: int(number) for name, _, number in (one.partition("=") for one in sys.argv[1:end])},
        sys.argv[end + 1 :],
    )
