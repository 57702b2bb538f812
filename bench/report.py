"""The results for people: tables on the screen and in Markdown, plots, and JSON for programs."""

import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.contenders import PEERS, SYNCLINE
from bench.measure import JOBS_PER_SECOND, P50, Figures
from bench.plan import NO_OP
from bench.plots import Bar, bar_chart
from bench.results import Results, Spread, shown
from bench.targets import Verdict, divided, judge

TITLES = {
    "drain": "Draining no-op jobs, one process",
    "http": "Runs of `rest` over TLS, 100 at once, beside the bare client",
    "latency": "From the call to the start of the job, idle worker",
    "cursor": "Draining jobs that move their cursor",
    "signals": "Draining jobs with ten signals each",
    "tick": "The scheduler, one connection in ten due",
    "library": "Draining as a library, and by the command line",
    "backoff": "Draining after an outage",
    "finished": "Draining with finished jobs in the table",
    "snapshot": "Draining again and again while an old snapshot is held",
    "workers": "Draining with several processes",
    "slow": "Connectors that wait 50 ms, 1000 at once",
    "git": "The first sync of a git repository",
    "memory": "Memory of the worker",
    "mixed": "Mixed steady state: signals, failures, retention",
    "steady": "Steady state without signals, failures and retention",
}
PLOTTED = {
    "drain": (JOBS_PER_SECOND, "client CPU, µs/job"),
    "http": ("CPU ÷ bare calls", "runs/s ÷ bare loop"),
    "latency": (P50,),
    "cursor": (JOBS_PER_SECOND,),
    "library": (JOBS_PER_SECOND,),
    "backoff": (JOBS_PER_SECOND,),
    "tick": ("scheduled/s", "empty tick, ms"),
    "finished": (JOBS_PER_SECOND,),
    "snapshot": (JOBS_PER_SECOND,),
    "workers": (JOBS_PER_SECOND,),
}
COMPARED = {"drain": JOBS_PER_SECOND, "latency": P50}
SIGNS = {"aim met": "green", "met": "yellow", "missed": "red", "not measured": "dim"}


def write(results: Results, folder: Path) -> list[Path]:
    """Write everything below the folder and return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    plots = {f"{name}.svg": drawing for name, drawing in draw(results)}
    summary = markdown(results, list(plots))
    files = {"results.json": json.dumps(as_json(results), indent=1) + "\n", "results.md": summary}
    for name, text in (files | plots).items():
        (folder / name).write_text(text)
    return [folder / name for name in files | plots]


def show(results: Results, console: Console) -> None:
    """Print the medians with their spread, and the ratios with their targets."""
    for workload in results.workloads():
        head, *rows = table(results, workload)
        shown_table = Table(*head, title=TITLES[workload], title_justify="left")
        for row in rows:
            shown_table.add_row(*row)
        console.print(shown_table)
    ratios = Table("figure", "this run", "must", "aim", "verdict", title="Ratios")
    for verdict in judge(results):
        colour = SIGNS[verdict.word]
        ratios.add_row(*cells(verdict), f"[{colour}]{verdict.word}[/]")
    console.print(ratios)
    for trouble in troubles(results):
        console.print(trouble, style="red", markup=False, highlight=False)


def headline(figures: Figures) -> str:
    """Return a trial's first figure, which is its main one."""
    name, value = next(iter(figures.items()))
    return f"{shown(value)} {name}"


def markdown(results: Results, plots: Sequence[str]) -> str:
    """Return the whole report, with the plots beside it."""
    parts = ["# Benchmark results", machine(results), "## Ratios", ratio_table(judge(results))]
    parts += [f"**{trouble}**" for trouble in troubles(results)]
    for workload in results.workloads():
        parts += [f"## {TITLES[workload]}", as_markdown(table(results, workload))]
        parts += [f"![{TITLES[workload]}]({name})" for name in plots if name.startswith(workload)]
    parts += ["## Settings", settings(results)]
    return "\n\n".join(parts) + "\n"


def machine(results: Results) -> str:
    return "\n".join(f"* {name}: {value}" for name, value in results.machine.items())


def settings(results: Results) -> str:
    """Return the settings of every contender, one line each."""
    server = ", ".join(f"{name} {value}" for name, value in results.settings["postgres"].items())
    peers = [f"{', '.join(peer.requirements)}: {peer.settings}" for peer in PEERS]
    rounds = f"medians [least … greatest] of {results.settings['rounds']} interleaved rounds"
    return "\n".join(f"* {line}" for line in (rounds, f"Postgres: {server}", *peers))


def ratio_table(verdicts: Sequence[Verdict]) -> str:
    rows = [(*cells(verdict), verdict.word) for verdict in verdicts]
    return as_markdown([("figure", "this run", "must", "aim", "verdict"), *rows])


def cells(verdict: Verdict) -> tuple[str, str, str, str]:
    target, sign = verdict.target, "≤" if verdict.target.at_most else "≥"
    value = "-" if verdict.value is None else str(verdict.value)
    return target.name, value, f"{sign} {shown(target.must)}", f"{sign} {shown(target.aim)}"


def troubles(results: Results) -> list[str]:
    """Return what is missing from the tables, and why."""
    missing = [f"{name} could not be installed: {why}" for name, why in results.absent.items()]
    return missing + results.failed


def table(results: Results, workload: str) -> list[tuple[str, ...]]:
    """Return a head and a row per contender and variant, with our ratio to each peer."""
    figures, compared = results.figures(workload), COMPARED.get(workload)
    head = ("", *figures, *([f"Syncline ÷ it ({compared})"] if compared else []))
    lines: list[tuple[str, ...]] = [head]
    for variant, contender in results.rows(workload):
        spreads = [results.spread((workload, variant, contender, figure)) for figure in figures]
        cells = ["-" if spread is None else str(spread) for spread in spreads]
        if compared:
            ours = results.by_round(workload, NO_OP, compared)
            ratio = divided(ours, results.by_round(workload, variant, compared, contender))
            cells.append(str(Spread.of(list(ratio.values()))) if ratio else "-")
        lines.append((label(workload, variant, contender), *cells))
    # If there are more figures than rows, a vertical table is easier to read.
    return list(zip(*lines, strict=True)) if len(figures) > len(lines) else lines


def label(workload: str, variant: str, contender: str) -> str:
    """Return the name of a row: beside peers the contender, and its variant unless it is alone."""
    if workload not in COMPARED:
        return variant
    return contender if variant == NO_OP else f"{contender}, {variant}"


def as_markdown(lines: Sequence[Sequence[str]]) -> str:
    head, *rows = lines
    ruler = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ruler, *rows))


def draw(results: Results) -> list[tuple[str, str]]:
    """Return the plots by their names."""
    drawings = []
    for workload, figures in PLOTTED.items():
        for number, figure in enumerate(figures, 1):
            bars = []
            for variant, contender in results.rows(workload):
                spread = results.spread((workload, variant, contender, figure))
                if spread is not None:
                    name = label(workload, variant, contender)
                    bars.append(Bar(name, spread, contender == SYNCLINE))
            if bars:
                chart = bar_chart(TITLES[workload], figure, bars)
                drawings.append((f"{workload}-{number}", chart))
    return drawings


def as_json(results: Results) -> dict[str, object]:
    verdicts = [
        {
            "name": verdict.target.name,
            "median": verdict.value.median if verdict.value else None,
            "must": verdict.target.must,
            "aim": verdict.target.aim,
            "verdict": verdict.word,
        }
        for verdict in judge(results)
    ]
    return results.as_json() | {"ratios": verdicts}
