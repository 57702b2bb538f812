"""Measure Syncline next to its peers: `make bench`, or `python -m bench --help`."""

import argparse
import sys
import time
from contextlib import suppress
from dataclasses import asdict, fields, replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench import contenders, plan, report
from bench.contenders import PEERS
from bench.database import SERVER_SETTINGS, Database
from bench.plan import FULL, QUICK, TINY, Sizes, Trial
from bench.results import Results, describe_machine
from bench.runner import Runner, TrialFailed
from bench.targets import judge

RESULTS = Path(__file__).parent / "results"
PARTIAL = RESULTS / "partial"  # a partial run must not replace a complete one
QUICK_PEERS = ("pgqueuer",)
NAMES = {*plan.ALL, *plan.LONG, *plan.ON_REQUEST}
SIZES = {one.name: one.type for one in fields(Sizes)}


def main() -> int:
    """Return 0, or 1 if a trial failed or a quick run is far off the targets."""
    options = parse_options()
    console = Console()
    sizes = chosen_sizes(options)
    wanted = [peer for peer in PEERS if not options.quick or peer.name in QUICK_PEERS]
    with console.status("Installing the peers …"):
        installed = contenders.install([] if options.no_peers else wanted)
    trials = plan.plan(sizes, installed.peers, chosen_workloads(options))
    settings = {"rounds": options.rounds, "sizes": asdict(sizes), "postgres": SERVER_SETTINGS}
    results = Results(absent=installed.absent, settings=settings)
    with Database(profile=options.profile) as database:
        if options.profile and not database.has_statistics:
            console.print("[red]This Postgres has no pg_stat_statements.[/]")
        with console.status("Filling the server's write-ahead log …"):
            database.fill_log(sizes.log_megabytes)
        results.machine = describe_machine(database.version)
        runner = Runner(database, RESULTS / "profile", options)
        measure(trials, options.rounds, runner, results, console)
    report.show(results, console)
    for file in report.write(results, options.output):
        console.print(f"[dim]{file}[/]")
    far_off = options.quick and any(verdict.is_far_off for verdict in judge(results))
    return 1 if far_off or results.failed else 0


def measure(
    trials: list[Trial], rounds: int, runner: Runner, results: Results, console: Console
) -> None:
    """Run every trial of every round, and continue if one fails."""
    order = plan.interleaved(trials, rounds)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    # Drawn only twice a second: the bar shares the processors with the trials.
    with (
        Progress(*columns, console=console, refresh_per_second=2) as progress,
        suppress(KeyboardInterrupt),  # what was measured until then is still reported
    ):
        task = progress.add_task("", total=len(order))
        for number, trial in order:
            progress.update(task, description=trial.title)
            began = time.perf_counter()
            try:
                figures = runner.run(trial, number, progress.console)
                results.add(trial, number, figures)
                told = f"{number + 1}  {trial.title}: {report.headline(figures)}"
                took = f"{time.perf_counter() - began:.0f} s"
                progress.console.print(f"{told} ({took})", style="dim", highlight=False)
            except TrialFailed as failure:
                results.failed.append(str(failure))
                said = f"{failure}\n{failure.said}"
                progress.console.print(said, style="red", markup=False, highlight=False)
            progress.advance(task)


def chosen_sizes(options: argparse.Namespace) -> Sizes:
    """Return the sizes of this kind of run, with those that were given by name."""
    sizes = TINY if options.tiny else QUICK if options.quick else FULL
    return replace(sizes, **dict(options.size))


def named_size(text: str) -> tuple[str, float]:
    """Return the name and the value of `name=value`."""
    name, _, value = text.partition("=")
    kind = SIZES.get(name)
    if kind not in (int, float):
        names = ", ".join(name for name, kind in SIZES.items() if kind in (int, float))
        raise argparse.ArgumentTypeError(f"{name!r} is not one of {names}")
    return name, kind(value)


def chosen_workloads(options: argparse.Namespace) -> tuple[str, ...]:
    if options.only:
        return tuple(options.only.split(","))
    return plan.QUICK_ONES if options.quick else (*plan.ALL, *plan.LONG)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often each trial runs")
    parser.add_argument(
        "--only", default="", help="workloads, e.g. drain,tick; steady runs only so"
    )
    parser.add_argument("--quick", action="store_true", help="only pgqueuer, small; can fail")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, only to see that it works")
    parser.add_argument(
        "--size",
        type=named_size,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a size to change, e.g. mixed_connections=100000 (see bench/plan.py)",
    )
    parser.add_argument("--no-peers", action="store_true", help="measure Syncline alone")
    parser.add_argument("--output", type=Path, help="where the results go")
    parser.add_argument("--profile", action="store_true", help="show the costliest statements")
    parser.add_argument("--cprofile", action="store_true", help="profile the process with cProfile")
    parser.add_argument("--py-spy", metavar="PATH", help="draw a flamegraph with this py-spy")
    options = parser.parse_args()
    unknown = set(filter(None, options.only.split(","))) - NAMES
    if unknown:
        parser.error(f"unknown workloads: {', '.join(sorted(unknown))}")
    is_part = options.only or options.quick or options.tiny or options.no_peers or options.size
    options.output = options.output or (PARTIAL if is_part else RESULTS)
    return options


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:  # before the first trial: nothing to report
        sys.exit(130)
