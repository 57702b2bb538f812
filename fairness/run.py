"""One run: a server, a database for each case, and the cases of a group at the same time."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from rich.console import Console

from fairness.cases import Case
from fairness.measure import Figure
from fairness.plot import Plot
from fairness.stage import Run, open_stage
from syncline import Engine, Settings
from syncline.testing.database import TemporaryServer

LONGEST_SECONDS = 240
SERVER_SETTINGS = {
    "max_connections": "400",
    "shared_buffers": "512MB",
    "max_wal_size": "4GB",
    "track_commit_timestamp": "on",  # which commit came first
}


@dataclass(slots=True)
class Result:
    """What a case measured, and what went wrong."""

    case: Case
    figures: Sequence[Figure] = ()
    complaints: list[str] = field(default_factory=list)
    plots: list[Plot] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def is_good(self) -> bool:
        return not self.complaints and all(figure.is_kept for figure in self.figures)


async def run_all(
    cases: Sequence[Case], folder: Path, seed: int, console: Console, *, is_quick: bool
) -> list[Result]:
    server = TemporaryServer(server_settings=SERVER_SETTINGS)
    try:
        await asyncio.to_thread(server.start)
        template = await asyncio.to_thread(server.create_database)
        async with Engine(Settings(database_url=template)) as engine:
            await engine.migrate()
        one_at_a_time = asyncio.Lock()

        async def create_database() -> str:
            async with one_at_a_time:
                return await asyncio.to_thread(server.create_database, template)

        def group_of(case: Case) -> int:
            return 0 if is_quick else case.group

        run = Run(folder, seed, is_quick, create_database)
        results = []
        for _, group in groupby(sorted(cases, key=group_of), group_of):
            tasks = [asyncio.create_task(prove(case, run)) for case in group]
            for done in asyncio.as_completed(tasks):
                results.append(await done)
                show(console, results[-1])
        return results
    finally:
        await asyncio.to_thread(server.close)


async def prove(case: Case, run: Run) -> Result:
    """Run a case; whatever it raises is a complaint."""
    result, began = Result(case), time.monotonic()
    async with open_stage(run, case.name, case.applications) as stage:
        try:
            async with asyncio.timeout(LONGEST_SECONDS):
                result.figures = await case.run(stage)
        except (Exception, TimeoutError) as error:
            result.complaints.append(f"{type(error).__name__}: {error}")
        result.complaints += stage.complaints()
        result.plots = stage.plots
    result.seconds = time.monotonic() - began
    return result


def show(console: Console, result: Result) -> None:
    """Print a line with the figures and bounds of a case."""
    mark = "kept  " if result.is_good else "MISSED"
    figures = "; ".join(
        str(figure) if figure.is_kept else f"→ {figure}" for figure in result.figures
    )
    console.print(
        f"{mark} {result.case.name}, {result.seconds:.0f} s: {figures}",
        style=None if result.is_good else "red",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    for complaint in result.complaints:
        console.print(f"       {complaint}", style="red", highlight=False, markup=False)


def as_markdown(results: Sequence[Result], seconds: float) -> str:
    """Return the figures as a table for the documentation."""
    lines = [
        f"{seconds:.0f} seconds.",
        "",
        "| case | figure | value | bound |",
        "|---|---|---:|---|",
    ]
    for result in results:
        for figure in result.figures:
            value = str(figure).removeprefix(figure.what).split(" (")[0].strip()
            lines.append(f"| {result.case.name} | {figure.what} | {value} | {figure.bound} |")
        lines += [f"| {result.case.name} | {complaint} | | |" for complaint in result.complaints]
    return "\n".join(lines) + "\n"
