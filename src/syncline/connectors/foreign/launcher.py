"""Start a program that ends when the process that asked for it does: launcher.py PROGRAM [ARG…].

It runs before the program takes its place, in an interpreter without any packages.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1

if sys.platform == "linux":
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
os.execv(sys.argv[1], sys.argv[1:])  # noqa: S606  (the program was installed by the user)
