"""Samples the database during a run: throughput, deadlocks, and inconsistent snapshots."""

import asyncio
import contextlib
import itertools

from faults.database import Database
from faults.record import Record, Sample

SAMPLE_SECONDS = 0.5
EVERY_NTH_LOOKS_CLOSER = 8
STATE = """
    SELECT (SELECT count(*) FROM syncline.signals) AS signals,
           (SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()) AS deadlocks
"""


class Monitor:
    def __init__(self, url: str, record: Record) -> None:
        self._database = Database(url)
        self._record = record
        self._deadlocks_seen = 0

    async def run(self) -> None:
        """Sample until cancelled; while Postgres is away, samples are empty."""
        for number in itertools.count():
            sample = Sample(self._record.now())
            with contextlib.suppress(Exception):
                sample = await self._sample()
                if number % EVERY_NTH_LOOKS_CLOSER == 0:
                    self._record.torn += await self._database.torn()
            self._record.samples.append(sample)
            paused = self._record.now()
            await asyncio.sleep(SAMPLE_SECONDS)
            overslept = self._record.now() - paused - SAMPLE_SECONDS
            self._record.longest_stall = max(self._record.longest_stall, overslept)

    def close(self) -> None:
        self._database.close()

    async def _sample(self) -> Sample:
        [state] = await self._database.fetch(STATE)
        # A crash of the server resets its statistics.
        grown = state["deadlocks"] - self._deadlocks_seen
        self._record.deadlocks += max(grown, 0)
        self._deadlocks_seen = state["deadlocks"]
        return Sample(self._record.now(), state["signals"])
