"""A connector that counts the runs of a process that another one watches.

The module is named in the settings of `syncline run`, and imported by a plain script. The last run
writes the processor time since the first to the file that `BENCH_PROBE_FILE` names.
"""

import os
from pathlib import Path
from typing import Any

from bench.measure import cpu_seconds
from bench.workloads.case import PROVIDER
from syncline import Connection, Connector, SyncResult

FILE, RUNS = "BENCH_PROBE_FILE", "BENCH_PROBE_RUNS"


class Probe(Connector):
    """Does nothing but count."""

    provider = PROVIDER

    def __init__(self) -> None:
        self._left = int(os.environ[RUNS])
        self._began: float | None = None

    async def sync(self, connection: Connection, cursor: Any) -> SyncResult:  # noqa: ARG002
        if self._began is None:
            self._began = cpu_seconds()
        self._left -= 1
        if not self._left:
            file = Path(os.environ[FILE])
            unfinished = file.with_suffix(".new")
            unfinished.write_text(str(cpu_seconds() - self._began))
            unfinished.rename(file)
        return SyncResult()
