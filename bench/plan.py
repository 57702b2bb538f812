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
    http_runs: int = 4000
    http_paged_runs: int = 1000
    commits: int = 34_886
    finished: int = MILLION
    cycles: int = 4
    workers: tuple[int, ...] = (1, 2, 4)
    slow_jobs: int = 100_000
    memory_cycles: int = 10
    ended_backoffs: int = 100_000
    backoff_seconds: int = 30  # then the jobs that have started count
    steady_connections: int = MILLION
    steady_minutes: float = 10
    mixed_connections: int = MILLION
    mixed_minutes: float = 30
    mixed_interval: int = 900  # seconds
    mixed_kept_minutes: float = 8  # retention
    mixed_bringing: float = 0.3  # the share of runs that bring signals
    mixed_signals: int = 5
    mixed_failing: float = 0.02
    shows_variants: bool = True  # whether trials run on which no target depends
    log_megabytes: int = 4096  # half a million connections and their tick write 0.7 GB


FULL = Sizes()
QUICK = Sizes(
    jobs=20_000,
    samples=100,
    connections=(10_000, 100_000),
    backoff=10_000,
    loop=300,
    signal_jobs=5000,
    http_runs=1000,
    http_paged_runs=100,
    finished=100_000,
    commits=5000,
    slow_jobs=20_000,
    memory_cycles=5,
    ended_backoffs=20_000,
    backoff_seconds=10,
    mixed_connections=100_000,
    mixed_minutes=6,
    mixed_interval=90,
    mixed_kept_minutes=0.8,
    shows_variants=False,
    log_megabytes=1024,
)
TINY = Sizes(
    jobs=2000,
    samples=20,
    connections=(2000, 5000),
    backoff=1000,
    loop=50,
    signal_jobs=500,
    http_runs=200,
    http_paged_runs=50,
    commits=300,
    finished=5000,
    cycles=2,
    workers=(1, 2),
    slow_jobs=4000,
    memory_cycles=2,
    ended_backoffs=2000,
    backoff_seconds=5,
    steady_connections=9000,
    steady_minutes=0.5,
    mixed_connections=9000,
    mixed_minutes=0.5,
    mixed_interval=60,
    mixed_kept_minutes=0.1,
    log_megabytes=0,
)

ALL = (
    *("drain", "latency", "http", "cursor", "signals", "library", "backoff", "tick"),
    *("finished", "snapshot", "workers", "slow", "git"),
)
LONG = ("memory", "mixed")  # minutes each, so once per run
ON_REQUEST = ("steady",)  # `mixed` without signals, failures and retention
# A short drain depends on the machine's speed in its seconds, so it runs several times a round.
DRAINS_A_ROUND = 3
SHORT = ("drain", "cursor", "finished", "library")
RANDOM_IDS = "random ids, shuffled due times"
DEFAULT_SETTINGS = "default settings"
NO_OP, NEW_CURSORS, ONE_CALL = "no-op", "new cursors", "1 call, 10 records"
NONE_HELD, OLD_HELD = "none held", "an old one held"
LIBRARY, COMMAND_LINE = "library", "command line"
OWN_SIGNALS = "library, own signals"
LAUNCHES = (LIBRARY, OWN_SIGNALS, COMMAND_LINE)
SHOWN_ONLY = (RANDOM_IDS, OWN_SIGNALS)  # no target depends on them, so once a round is enough
QUICK_ONES = (
    *("drain", "latency", "http", "signals", "backoff", "tick", "finished", "slow", "git"),
    "memory",
)


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
        return self.workload in (*LONG, *ON_REQUEST)

    @property
    def is_short(self) -> bool:
        is_drain = self.workload in SHORT and self.variant not in SHOWN_ONLY
        return is_drain and (self.peer is None or self.peer.slowness == 1)

    @property
    def title(self) -> str:
        return f"{self.workload}, {self.variant}: {self.contender}"


def plan(sizes: Sizes, peers: Sequence[Peer], only: Sequence[str]) -> list[Trial]:
    """Return the trials of one round, in the order of the report."""
    trials = [
        *calls(sizes),
        *beside_peers(sizes, peers),
        *drains(sizes),
        *after_outage(sizes),
        *ticks(sizes),
        *long_ones(sizes),
    ]
    return [
        trial
        for trial in trials
        if trial.workload in only and (sizes.shows_variants or trial.variant not in SHOWN_ONLY)
    ]


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
        trials.append(Trial(workload, NO_OP, options={name: count, "concurrency": CONCURRENCY}))
        for peer in peers:
            if workload in peer.workloads:
                fewer = count // peer.slowness if workload == "drain" else count
                trials.append(Trial(workload, NO_OP, peer.name, {"count": fewer}, peer))
    return trials


def drains(sizes: Sizes) -> list[Trial]:
    jobs = {"jobs": sizes.jobs, "concurrency": CONCURRENCY}
    by_default, random_ids = jobs | {"concurrency": None}, jobs | {"random_ids": True}
    many = f"{sizes.finished:,} finished"
    signals = {"jobs": sizes.signal_jobs, "signals": 10, "concurrency": CONCURRENCY}
    cycles = jobs | {"cycles": sizes.cycles}
    return [
        Trial("drain", DEFAULT_SETTINGS, options=by_default),
        Trial("drain", RANDOM_IDS, options=random_ids),
        Trial("cursor", NEW_CURSORS, options=jobs),
        Trial("cursor", DEFAULT_SETTINGS, options=by_default),
        Trial("cursor", RANDOM_IDS, options=random_ids),
        *(Trial("library", by, options=jobs | {"by": by}) for by in LAUNCHES),
        Trial("signals", "10 a job", options=signals),
        Trial("finished", "empty table", options=jobs | {"finished": 0}),
        Trial("finished", many, options=jobs | {"finished": sizes.finished}),
        Trial("snapshot", NONE_HELD, options=cycles | {"held": False}),
        Trial("snapshot", OLD_HELD, options=cycles | {"held": True}),
        *(
            Trial("workers", f"{number} processes", options=jobs | {"workers": number})
            for number in sizes.workers
        ),
        Trial("slow", "50 ms", options={"jobs": sizes.slow_jobs, "concurrency": 1000}),
        Trial("git", f"{sizes.commits:,} commits", options={"commits": sizes.commits}),
    ]


def calls(sizes: Sizes) -> list[Trial]:
    """Return the runs of `rest`, 100 at once."""
    kinds = {
        ONE_CALL: {"kind": "one", "jobs": sizes.http_runs},
        "5 pages of 10 records": {"kind": "pages", "jobs": sizes.http_paged_runs},
        "nothing new (304)": {"kind": "304", "jobs": sizes.http_runs},
    }
    return [
        Trial("http", variant, options=options | {"concurrency": 100})
        for variant, options in kinds.items()
    ]


def after_outage(sizes: Sizes) -> list[Trial]:
    """Return drains of fresh jobs and of jobs whose backoff has ended, with few and many slots."""
    jobs = {"jobs": sizes.ended_backoffs, "seconds": sizes.backoff_seconds}
    return [
        Trial(
            "backoff",
            backoff_variant(ended=ended, by_default=concurrency is None),
            options=jobs | {"ended": ended, "concurrency": concurrency},
        )
        for concurrency in (None, CONCURRENCY)
        for ended in (False, True)
    ]


def backoff_variant(*, ended: bool, by_default: bool) -> str:
    slots = "default slots" if by_default else f"{CONCURRENCY:,} slots"
    return f"{'backoff ended' if ended else 'fresh'}, {slots}"


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
    mixed = {
        "connections": sizes.mixed_connections,
        "seconds": sizes.mixed_minutes * 60,
        "interval": sizes.mixed_interval,
        "kept_minutes": sizes.mixed_kept_minutes,
        "bringing": sizes.mixed_bringing,
        "signals": sizes.mixed_signals,
        "failing": sizes.mixed_failing,
        "concurrency": None,
    }
    steady = mixed | {
        "connections": sizes.steady_connections,
        "seconds": sizes.steady_minutes * 60,
        **dict.fromkeys(("kept_minutes", "bringing", "signals", "failing"), 0),
    }
    return [
        Trial("memory", f"{sizes.jobs * sizes.memory_cycles:,} jobs", options=memory),
        Trial("mixed", f"{sizes.mixed_connections:,}", options=mixed),
        Trial("steady", f"{sizes.steady_connections:,}", options=steady),
    ]
