"""Run a module in a process whose clock is wrong: python -m faults.shifted SECONDS MODULE …

Each SIGUSR1 toggles the clock between the right time and SECONDS ahead.
"""

import itertools
import runpy
import signal
import sys
import time


def shift_clock(seconds: int) -> None:
    """Shift this process's clock by these seconds; monotonic time stays true.

    `datetime.now` cannot safely be replaced, but the linter forbids it in the engine.
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
