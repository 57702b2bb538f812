"""Run a module in a process whose clock is wrong: python -m faults.shifted SECONDS MODULE …

At each SIGUSR1 the clock jumps: to the right time, or from it so many seconds ahead again.
"""

import itertools
import runpy
import signal
import sys
import time


def shift_clock(seconds: int) -> None:
    """Let this process believe that it is so many seconds later; monotonic time stays true.

    `datetime.now`, which cannot be replaced without harm, is refused by the engine's linter.
    """
    real_time, real_time_ns = time.time, time.time_ns
    shifts = itertools.cycle((0, seconds))
    shift = seconds

    def jump(*_: object) -> None:
        nonlocal shift
        shift = next(shifts)

    signal.signal(signal.SIGUSR1, jump)
    time.time = lambda: real_time() + shift
    time.time_ns = lambda: real_time_ns() + shift * 1_000_000_000


if __name__ == "__main__":
    shift_clock(int(sys.argv[1]))
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
