"""The same drain by a plain script that uses the library, and by `syncline run`."""

import asyncio
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.measure import CPU_PER_JOB, JOBS_PER_SECOND, POLL_SECONDS, Figures
from bench.workloads import probe
from bench.workloads.case import PENDING, RATE_OF_ROWS, Case, Counted, begin_measuring
from bench.workloads.data import add_connections, give_a_past, queue_jobs

PATIENCE_SECONDS = 120
SCRIPT = ("-m", "bench.workloads.plain_script")
COMMANDS = {
    "library": SCRIPT,
    "library, own signals": (*SCRIPT, "--own-signals"),
    "command line": ("-m", "syncline", "run", "--no-scheduler", "--port", "0"),
}


async def drain_outside(case: Case) -> Figures:
    """Queue jobs, and let a real process drain them."""
    jobs = case.size("jobs")
    async with case.engine(Counted(lambda: None)), case.session() as session:
        await add_connections(session, jobs)
        began_at = await session.fetchval("SELECT now()")
        await queue_jobs(session)
        await give_a_past(session)
        await begin_measuring(session)
        cpu = await run_until_empty(case, session)
        rate = await session.fetchval(RATE_OF_ROWS, began_at)
    return {JOBS_PER_SECOND: rate, CPU_PER_JOB: cpu / jobs * 1e6}


async def run_until_empty(case: Case, session: Any) -> float:
    """Return the processor time of the process from its first run to its last."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "probe"
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, *COMMANDS[case.options["by"]]),
            env=os.environ | variables(case, file),
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not file.exists():
                    assert process.returncode is None, "the process ended"
                    await asyncio.sleep(POLL_SECONDS)
                while await session.fetchval(PENDING):  # noqa: ASYNC110  (nothing sets an event)
                    await asyncio.sleep(POLL_SECONDS)
        finally:
            if process.returncode is None:
                process.terminate()
            assert await process.wait() == 0, "the process did not end well"
        return float(file.read_text())


def variables(case: Case, file: Path) -> dict[str, str]:
    """Return the settings of the process, as a deployment has them."""
    return {
        "SYNCLINE_DATABASE_URL": case.url,
        "SYNCLINE_EXECUTOR__CONCURRENCY": str(case.options["concurrency"]),
        "SYNCLINE_CONNECTORS": probe.__name__,
        probe.FILE: str(file),
        probe.RUNS: str(case.size("jobs")),
    }
