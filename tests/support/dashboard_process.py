"""A dashboard as a process of its own, which can be killed and started again at its address."""

import os
import re
import subprocess
import time
from pathlib import Path

from support.processes import COMMAND, PATH

LISTENS = re.compile(r"http://127\.0\.0\.1:(\d+)")
START_SECONDS = 60


class DashboardProcess:
    def __init__(self, url: str, folder: Path) -> None:
        self.address = ""
        self._log = folder / "dashboard.log"
        self._environment = {**os.environ, "SYNCLINE_DATABASE_URL": url, "PYTHONPATH": PATH}
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> str:
        """Start it, the second time at the same address; return the address."""
        migrate = [*COMMAND[:-1], "migrate"]
        subprocess.run(migrate, env=self._environment, check=True, capture_output=True)
        options = ("--dashboard", "--no-scheduler", "--no-executor", "--port", str(self._port))
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*COMMAND, *options], env=self._environment, stdout=log, stderr=log
            )
        deadline = time.monotonic() + START_SECONDS
        while not (found := LISTENS.search(self._log.read_text(errors="replace"))):
            assert self._process.poll() is None, self._log.read_text(errors="replace")
            assert time.monotonic() < deadline, "the dashboard did not start"
            time.sleep(0.05)
        self._port, self.address = int(found.group(1)), found.group()
        return self.address

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
