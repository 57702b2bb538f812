"""The table at the end of a run, for the terminal and for the documentation."""

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from faults.kinds import Kind
from faults.record import Record
from faults.verdict import Verdict


def show(console: Console, catalogue: Mapping[str, Kind], record: Record, verdict: Verdict) -> None:
    """Print what was injected, the results, and the verdict."""
    faults = Table("fault", "times", "longest", "what must hold", title="Faults injected")
    counts = record.by_kind()
    for kind in catalogue.values():
        times = str(counts[kind.name]) if kind.name in counts else ""
        absent = record.absent.get(kind.name)
        lasted = [one.ended - one.began for one in record.injections if one.kind == kind.name]
        longest = f"{max(lasted):.1f} s" if lasted else ""
        if times or absent:
            faults.add_row(kind.name, times or f"{absent} not found", longest, kind.sentence)
    console.print(faults)

    results = Table("result", "value", "at most", "", title="Verdict")
    for line in verdict.lines:
        limit = "" if line.limit is None else f"{line.limit:g} {line.unit}".strip()
        mark = "" if line.limit is None else ("kept" if line.is_kept else "[red]BROKEN[/red]")
        results.add_row(line.what, str(line), limit, mark)
    console.print(results)
    for complaint in verdict.complaints:
        console.print(complaint, style="red", highlight=False, markup=False)
    console.print("Every promise was kept." if verdict.is_good else "[red]A promise was broken.")


def as_markdown(seed: int, record: Record, verdict: Verdict) -> str:
    """Return the same as tables for docs/reliability.md."""
    lines = [f"Seed {seed}, {record.now():.0f} seconds.", "", "| result | value | at most |"]
    lines.append("|---|---:|---:|")
    for line in verdict.lines:
        limit = "" if line.limit is None else f"{line.limit:g} {line.unit}".strip()
        lines.append(f"| {line.what} | {line} | {limit} |")
    lines += ["", "| fault | times |", "|---|---:|"]
    lines += [f"| {kind} | {times} |" for kind, times in sorted(record.by_kind().items())]
    lines += [f"| {kind} | {program} not found |" for kind, program in record.absent.items()]
    return "\n".join(lines) + "\n"
