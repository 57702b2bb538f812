"""A worker or scheduler started from the command line, its log, and its environment."""

import ctypes
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from faults.waiting import until

Popen = subprocess.Popen[bytes]
Role = Literal["worker", "scheduler"]
ROOT = Path(__file__).parents[1]
RECORD_BEGINS = re.compile(r"^(?=\d{4}-\d\d-\d\d )", re.MULTILINE)
CONNECTORS_OWN = "executor.connector_raised"  # what a fault made the connector do
PR_SET_PDEATHSIG = 1


class Process:
    """A running worker or scheduler."""

    def __init__(self, role: Role, popen: Popen, log: Path) -> None:
        self.role = role
        self.log = log
        self.may_end = False
        self.has_complained = False
        self.still_until = 0.0  # it was frozen until then, by time.monotonic()
        self._popen = popen

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def is_running(self) -> bool:
        return self._popen.poll() is None

    @property
    def exit_code(self) -> int | None:
        return self._popen.returncode

    def kill(self) -> None:
        self.may_end = True
        self._popen.kill()

    def send(self, number: signal.Signals) -> None:
        self.may_end = self.may_end or number in (signal.SIGTERM, signal.SIGINT)
        if number == signal.SIGSTOP:
            self.still_until = math.inf
        elif number == signal.SIGCONT:
            self.still_until = min(self.still_until, time.monotonic())
        self._popen.send_signal(number)

    async def ended(self, *, within: float) -> int:
        await until(lambda: not self.is_running, within=within, what=f"the end of {self.log.stem}")
        return self._popen.returncode

    def wait(self) -> None:
        self._popen.wait()

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-3000:]

    def has_failed(self) -> bool:
        """Whether the log shows an exception that is not a connector's own."""
        records = RECORD_BEGINS.split(self.log.read_text(errors="replace"))
        return any("Traceback" in one and CONNECTORS_OWN not in one for one in records)


def environment_of(settings: Mapping[str, object]) -> dict[str, str]:
    """Return the environment of a process with these settings and no others."""
    outside = {name: value for name, value in os.environ.items() if "SYNCLINE_" not in name}
    chosen = {f"SYNCLINE_{name}": str(value) for name, value in settings.items()}
    return {**outside, **chosen, "PYTHONPATH": str(ROOT)}


def spawn(command: Sequence[str], environment: Mapping[str, str], log: Path) -> Popen:
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            env=environment,
            cwd=log.parent,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for the suite, which then ends them all
        )


def end_with_the_suite() -> None:
    """On Linux, end this process when the suite itself is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
