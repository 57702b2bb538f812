"""Which trials make up a run: every workload at every size, for us and for the peers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.contenders import SYNCLINE, Peer

CONCURRENCY = 8000  # a setting for short jobs; the default of 50 is for slow ones
MILLION = 1_000_000


@dataclass(frozen=True)
class Sizes:
    """How much each workload does."""

    jobs: int = 50_000
    samples: int = 300
    connections: tuple[int, ...] = (10_000, 100_000, MILLION)
    backoff: int = 100_000
    loop: int = 1000
    signal_jobs: int = 20_000
    commits: int = 34_886
    finished: int = MILLION
    cycles: int = 4
    workers: tuple[int, ...] = (1, 2, 4)
    slow_jobs: int = 100_000
    memory_cycles: int = 10
    steady_connections: int = MILLION
    steady_seconds: int = 600
    log_megabytes: int = 4096  # half a million connections and their tick write 0.7 GB


FULL = Sizes()
QUICK = Sizes(
    jobs=20_000,
    samples=100,
    connections=(10_000, 100_000),
    backoff=10_000,
    loop=300,
    signal_jobs=5000,
    commits=5000,
    finished=200_000,
    slow_jobs=20_000,
    memory_cycles=5,
    log_megabytes=1024,
)
TINY = Sizes(
    jobs=2000,
    samples=20,
    connections=(2000, 5000),
    backoff=1000,
    loop=50,
    signal_jobs=500,
    commits=300,
    finished=5000,
    cycles=2,
    workers=(1, 2),
    slow_jobs=4000,
    memory_cycles=2,
    steady_connections=9000,
    steady_seconds=10,
    log_megabytes=0,
)

ALL = (
    "drain",
    "latency",
    "cursor",
    "signals",
    "tick",
    "finished",
    "snapshot",
    "workers",
    "slow",
    "git",
)
LONG = ("memory", "steady")  # minutes each, so once per run
# A short drain depends on the machine's speed in its seconds, so it runs several times a round.
DRAINS_A_ROUND = 3
QUICK_ONES = ("drain", "latency", "signals", "tick", "finished", "slow", "git", "memory")


@dataclass(frozen=True)
class Trial:
    """One process, measured once a round; `variant` distinguishes its sizes."""

    workload: str
    variant: str
    contender: str = SYNCLINE
    options: dict[str, Any] = field(default_factory=dict)
    peer: Peer | None = None

    @property
    def is_long(self) -> bool:
        return self.workload in LONG

    @property
    def is_short(self) -> bool:
        is_drain = self.workload in ("drain", "finished")
        return is_drain and (self.peer is None or self.peer.slowness == 1)

    @property
    def title(self) -> str:
        return f"{self.workload}, {self.variant}: {self.contender}"


def plan(sizes: Sizes, peers: Sequence[Peer], only: Sequence[str]) -> list[Trial]:
    """Return the trials of one round, in the order of the report."""
    trials = [*beside_peers(sizes, peers), *drains(sizes), *ticks(sizes), *long_ones(sizes)]
    return [trial for trial in trials if trial.workload in only]


def interleaved(trials: Sequence[Trial], rounds: int) -> list[tuple[int, Trial]]:
    """Return the trials of all rounds; each round begins with another trial.

    Further turns of short trials follow each round, and are numbered as rounds of their own.
    """
    order = []
    for number in range(rounds):
        shift = number * len(trials) // rounds
        turn = [*trials[shift:], *trials[:shift]]
        order += [(number, trial) for trial in turn if number == 0 or not trial.is_long]
        for further in range(number + rounds, DRAINS_A_ROUND * rounds, rounds):
            order += [(further, trial) for trial in trials if trial.is_short]
    return order


def beside_peers(sizes: Sizes, peers: Sequence[Peer]) -> list[Trial]:
    trials = []
    for workload, count in (("drain", sizes.jobs), ("latency", sizes.samples)):
        name = "jobs" if workload == "drain" else "samples"
        trials.append(Trial(workload, "no-op", options={name: count, "concurrency": CONCURRENCY}))
        for peer in peers:
            if workload in peer.workloads:
                fewer = count // peer.slowness if workload == "drain" else count
                trials.append(Trial(workload, "no-op", peer.name, {"count": fewer}, peer))
    return trials


def drains(sizes: Sizes) -> list[Trial]:
    jobs = {"jobs": sizes.jobs, "concurrency": CONCURRENCY}
    many = f"{sizes.finished:,} finished"
    signals = {"jobs": sizes.signal_jobs, "signals": 10, "concurrency": CONCURRENCY}
    cycles = jobs | {"cycles": sizes.cycles}
    return [
        Trial("cursor", "new cursors", options=jobs),
        Trial("signals", "10 a job", options=signals),
        Trial("finished", "empty table", options=jobs | {"finished": 0}),
        Trial("finished", many, options=jobs | {"finished": sizes.finished}),
        Trial("snapshot", "none held", options=cycles | {"held": False}),
        Trial("snapshot", "an old one held", options=cycles | {"held": True}),
        *(
            Trial("workers", f"{number} processes", options=jobs | {"workers": number})
            for number in sizes.workers
        ),
        Trial("slow", "50 ms", options={"jobs": sizes.slow_jobs, "concurrency": 1000}),
        Trial("git", f"{sizes.commits:,} commits", options={"commits": sizes.commits}),
    ]


def ticks(sizes: Sizes) -> list[Trial]:
    trials = []
    for backoff in (0, sizes.backoff):
        for count in sizes.connections:
            variant = f"{count:,}" + (f" + {backoff:,} in backoff" if backoff else "")
            options = {"connections": count, "backoff": backoff, "loop": sizes.loop}
            trials.append(Trial("tick", variant, options=options))
    return trials


def long_ones(sizes: Sizes) -> list[Trial]:
    memory = {"jobs": sizes.jobs, "cycles": sizes.memory_cycles, "concurrency": CONCURRENCY}
    steady = {"connections": sizes.steady_connections, "seconds": sizes.steady_seconds}
    return [
        Trial("memory", f"{sizes.jobs * sizes.memory_cycles:,} jobs", options=memory),
        Trial("steady", f"{sizes.steady_connections:,}", options=steady),
    ]
