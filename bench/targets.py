"""The targets, as ratios of figures of the same run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.contenders import SYNCLINE
from bench.measure import CPU_PER_JOB, JOBS_PER_SECOND, P50
from bench.results import Results, Spread

ByRound = dict[int, float]
LOOSE = 0.7  # how far from "must" a quick run may be: it is short, and the machine may be busy
TICK_SECONDS = 60  # the default interval between two ticks


@dataclass(frozen=True)
class Target:
    """A value, the bound that it must meet, and the value that we aim for."""

    name: str
    value: Callable[[Results], ByRound]
    must: float
    aim: float
    at_most: bool = False


@dataclass(frozen=True)
class Verdict:
    """The result for a target; without a value, it was not measured in this run."""

    target: Target
    value: Spread | None

    @property
    def word(self) -> str:
        if self.value is None:
            return "not measured"
        if self._meets(self.target.aim):
            return "aim met"
        return "met" if self._meets(self.target.must) else "missed"

    @property
    def is_far_off(self) -> bool:
        slack = 1 / LOOSE if self.target.at_most else LOOSE
        return self.value is not None and not self._meets(self.target.must * slack)

    def _meets(self, bound: float) -> bool:
        assert self.value is not None
        value = float(f"{self.value.median:.3g}")  # as it is shown
        return value <= bound if self.target.at_most else value >= bound


def judge(results: Results) -> list[Verdict]:
    """Return every target with the result of this run."""
    verdicts = []
    for target in TARGETS:
        values = list(target.value(results).values())
        verdicts.append(Verdict(target, Spread.of(values) if values else None))
    return verdicts


def drain_by(peer: str) -> Callable[[Results], ByRound]:
    def value(results: Results) -> ByRound:
        ours = results.by_round("drain", "no-op", JOBS_PER_SECOND)
        return divided(ours, results.by_round("drain", "no-op", JOBS_PER_SECOND, peer))

    return value


def cpu_per_job(results: Results) -> ByRound:
    return results.by_round("drain", "no-op", CPU_PER_JOB)


def latency_by_best_peer(results: Results) -> ByRound:
    peers = [contender for _, contender in results.rows("latency") if contender != SYNCLINE]
    rivals = [results.by_round("latency", "no-op", P50, peer) for peer in peers]
    best = {
        number: min(rival[number] for rival in rivals if number in rival)
        for number in sorted({number for rival in rivals for number in rival})
    }
    return divided(results.by_round("latency", "no-op", P50), best)


def tick_by_loop(results: Results) -> ByRound:
    sizes = tick_sizes(results)
    return results.by_round("tick", sizes[-1], "÷ per-row loop") if sizes else {}


def empty_tick_large_by_small(results: Results) -> ByRound:
    sizes = tick_sizes(results)
    if len(sizes) < 2:
        return {}
    small, large = (
        results.by_round("tick", size, "empty tick, ms") for size in (sizes[0], sizes[-1])
    )
    return divided(large, small)


def tick_sizes(results: Results) -> list[str]:
    """Return the variants without backoff, the smallest first."""
    plain = [variant for variant in results.variants("tick") if "backoff" not in variant]
    return sorted(plain, key=lambda variant: int(variant.replace(",", "")))


def finished_by_empty(results: Results) -> ByRound:
    variants = sorted(results.variants("finished"), key=lambda variant: variant != "empty table")
    if len(variants) < 2:
        return {}
    empty, full = (results.by_round("finished", one, JOBS_PER_SECOND) for one in variants)
    return divided(full, empty)


def only_variant(workload: str, figure: str) -> Callable[[Results], ByRound]:
    def value(results: Results) -> ByRound:
        variants = results.variants(workload)
        return results.by_round(workload, variants[0], figure) if variants else {}

    return value


def divided(ours: ByRound, theirs: ByRound) -> ByRound:
    return {number: ours[number] / theirs[number] for number in ours if number in theirs}


TARGETS: Sequence[Target] = (
    Target("drain ÷ graphile-worker, documented", drain_by("graphile-worker (24/500/0)"), 1.0, 1.4),
    Target("drain ÷ graphile-worker, tuned", drain_by("graphile-worker (100/10000/0)"), 0.7, 1.0),
    Target("drain ÷ pgqueuer", drain_by("pgqueuer"), 1.6, 2.5),
    Target("drain ÷ chancy", drain_by("chancy"), 4, 6),
    Target("drain ÷ procrastinate", drain_by("procrastinate"), 40, 60),
    Target("client CPU per no-op job, µs", cpu_per_job, 25, 15, at_most=True),
    Target("trigger-to-start p50 ÷ best peer", latency_by_best_peer, 1.0, 0.6, at_most=True),
    Target("tick at the largest size ÷ per-row loop", tick_by_loop, 25, 35),
    Target("empty tick, largest ÷ smallest", empty_tick_large_by_small, 3, 1.5, at_most=True),
    Target("signals, 10 a job ÷ psql COPY", only_variant("signals", "÷ psql COPY"), 0.5, 0.7),
    Target("drain with finished rows ÷ empty table", finished_by_empty, 0.95, 1.0),
    Target("slow connector ÷ ideal", only_variant("slow", "÷ ideal"), 0.8, 0.95),
    Target("first sync ÷ git log", only_variant("git", "÷ git log"), 30, 15, at_most=True),
    Target("memory, late ÷ early", only_variant("memory", "late ÷ early"), 1.1, 1.0, at_most=True),
    Target(
        "steady state, lateness p99, s",
        only_variant("steady", "lateness p99, s"),
        TICK_SECONDS + 5,
        TICK_SECONDS + 1,
        at_most=True,
    ),
)
