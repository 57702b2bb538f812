"""Run many seeds, or one: python -m simulation [--seeds 200 [--first 1]] [--seed 1234]."""

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import zip_longest

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from simulation import place
from simulation.life import Report

TRACE_LINES_SHOWN = 40
CALM = ("after rough times", "beside held rows", "once these were let go")


def main() -> int:
    arguments = _read_arguments()
    seeds = (
        [arguments.seed]
        if arguments.seed is not None
        else range(arguments.first, arguments.first + arguments.seeds)
    )
    console = Console()
    began = time.perf_counter()
    reports = []
    for report in _live_all(seeds, arguments.processes, console):
        reports.append(report)
        if report.failure:
            _show_failure(console, report)
            if arguments.stop:
                break
    _show_totals(console, reports, time.perf_counter() - began)
    return 1 if any(report.failure for report in reports) else 0


def _read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="live through one seed")
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--stop", action="store_true", help="stop at the first that fails")
    return parser.parse_args()


def _live_all(seeds: Sequence[int], processes: int, console: Console) -> Iterator[Report]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with (
        Progress(*columns, console=console) as progress,
        ProcessPoolExecutor(
            min(processes, len(seeds)), multiprocessing.get_context("spawn"), place.prepare
        ) as pool,
    ):
        bar = progress.add_task("seeds", total=len(seeds))
        lives = [pool.submit(place.live_in_it, seed) for seed in seeds]
        try:
            for future in as_completed(lives):
                progress.advance(bar)
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _show_failure(console: Console, report: Report) -> None:
    console.rule(f"seed {report.seed}", style="red")
    for line in report.trace[-TRACE_LINES_SHOWN:]:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    failure = f"seed {report.seed} failed: {report.failure}"
    console.print(failure, style="red", markup=False, highlight=False, soft_wrap=True)
    console.print(f"again: make simulate SEED={report.seed}")


def _show_totals(console: Console, reports: Sequence[Report], seconds: float) -> None:
    faults: Counter[str] = sum((report.faults for report in reports), Counter())
    answers: Counter[str] = sum((report.answers for report in reports), Counter())
    deeds: Counter[str] = sum((report.deeds for report in reports), Counter())
    failed = [report.seed for report in reports if report.failure]
    table = Table(show_header=False)
    rows = {
        "seeds": f"{len(reports)} in {seconds:.0f} s",
        "failed": ", ".join(map(str, failed)) or "none",
        "virtual time": f"{sum(report.virtual_seconds for report in reports) / 3600:.1f} h",
        "database calls": f"{sum(report.calls for report in reports):,}",
        "commits audited": f"{sum(report.commits for report in reports):,}",
        "signals, each stored once": f"{sum(report.signals for report in reports):,}",
        "longest calm": _longest(reports),
        "faults": _listed(faults),
        "connectors": _listed(answers),
        "people": _listed(deeds),
    }
    for name, value in rows.items():
        table.add_row(name, value)
    if len(reports) == 1:
        table.add_row("digest", reports[0].digest)
    console.print(table)


def _longest(reports: Sequence[Report]) -> str:
    """Return how long it took at most until everything was stored."""
    drains = zip_longest(*(report.drains for report in reports), fillvalue=0.0)
    longest = [f"{max(seconds):.0f} s" for seconds in drains]
    return ", ".join(map(" ".join, zip(longest, CALM, strict=False)))


def _listed(counts: Counter[str]) -> str:
    listed = ", ".join(f"{name} {count:,}" for name, count in counts.most_common())
    return f"{sum(counts.values()):,}: {listed}"


if __name__ == "__main__":
    sys.exit(main())
