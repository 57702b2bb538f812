"""Run one trial in this process and print its figures as the last line.

python -m bench.workloads WORKLOAD URL PSQL OPTIONS
"""

import cProfile
import json
import os
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from bench.measure import Figures, report
from bench.workloads import (
    draining,
    git,
    http,
    library,
    processes,
    signals,
    steady,
    ticking,
    waking,
)
from bench.workloads.case import Case
from syncline import eventloop

CPROFILE = "BENCH_CPROFILE"  # the file to write a profile of this process to

WORKLOADS: dict[str, Callable[[Case], Coroutine[Any, Any, Figures]]] = {
    "http": http.runs,
    "drain": draining.no_op,
    "cursor": draining.cursor,
    "slow": draining.slow,
    "finished": draining.finished,
    "backoff": draining.backoff,
    "snapshot": draining.snapshot,
    "memory": draining.memory,
    "latency": waking.latency,
    "tick": ticking.tick,
    "signals": signals.ingest,
    "library": library.drain_outside,
    "git": git.first_sync,
    "workers": processes.drain_together,
    "steady": steady.steady_state,
    "mixed": steady.steady_state,
}


def main() -> None:
    workload, url, psql, options = sys.argv[1:]
    case = Case(url, psql, json.loads(options))
    profile_file = os.environ.get(CPROFILE)
    if not profile_file:
        report(eventloop.run(WORKLOADS[workload](case)))
        return
    with cProfile.Profile() as profile:
        report(eventloop.run(WORKLOADS[workload](case)))
    profile.dump_stats(profile_file)


if __name__ == "__main__":
    main()
