"""Runs one trial in a fresh database and a separate process, with a profile if requested."""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from bench.database import Database
from bench.measure import Figures
from bench.plan import Trial

ROOT = Path(__file__).parents[1]
TIMEOUT_SECONDS = 1800
LAST_LINES = 12


class TrialFailed(Exception):
    """A process failed or did not end; the other trials are measured anyway."""

    def __init__(self, message: str, said: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.said = "\n".join(said)


class Runner:
    """Measures trials, one at a time."""

    def __init__(self, database: Database, folder: Path, options: argparse.Namespace) -> None:
        self._database = database
        self._folder = folder
        self._options = options

    def run(self, trial: Trial, number: int, console: Console) -> Figures:
        """Return the figures that the trial's process printed last."""
        with self._database.fresh() as url:
            figures = self._measure(trial, number, url)
            self._show_statements(trial, url, console)
        return figures

    def _measure(self, trial: Trial, number: int, url: str) -> Figures:
        try:
            done = subprocess.run(
                self._command(trial, number, url),
                cwd=ROOT,
                env=os.environ | self._variables(trial, number),
                capture_output=True,
                text=True,
                timeout=TIMEOUT_SECONDS + trial.options.get("seconds", 0),
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise TrialFailed(f"{trial.title} took longer than {error.timeout:.0f} s") from None
        # A profiler may print something after the figures.
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        if done.returncode != 0 or not lines:
            said = done.stderr.strip().splitlines()[-LAST_LINES:]
            why = said[-1] if said else "no word"
            raise TrialFailed(f"{trial.title} ended with {done.returncode}: {why}", said)
        figures: Figures = json.loads(lines[-1])
        return figures

    def _command(self, trial: Trial, number: int, url: str) -> list[str]:
        if trial.peer is not None:
            return trial.peer.command(trial.workload, url, trial.options["count"])
        options = json.dumps(trial.options)
        ours = ["-m", "bench.workloads", trial.workload, url, self._database.psql, options]
        if not self._options.py_spy:
            return [sys.executable, *ours]
        drawing = self._file(trial, number, "svg")
        recording = [self._options.py_spy, "record", "--rate", "200", "--output", str(drawing)]
        return [*recording, "--", sys.executable, *ours]

    def _variables(self, trial: Trial, number: int) -> dict[str, str]:
        if trial.peer is not None:
            return trial.peer.variables()
        variables = {}
        if self._options.profile and self._database.has_statistics:
            variables["BENCH_PROFILE"] = "1"
        if self._options.cprofile:
            variables["BENCH_CPROFILE"] = str(self._file(trial, number, "prof"))
        return variables

    def _file(self, trial: Trial, number: int, ending: str) -> Path:
        self._folder.mkdir(parents=True, exist_ok=True)
        variant = "".join(letter if letter.isalnum() else "-" for letter in trial.variant)
        return (self._folder / f"{trial.workload}-{variant}-{number}.{ending}").resolve()

    def _show_statements(self, trial: Trial, url: str, console: Console) -> None:
        top = self._database.top_statements(url)
        if top:
            console.print(
                f"[bold]{trial.title}[/]\n   calls        ms     rows   WAL kB  statement"
            )
        for one in top:
            numbers = f"{one['calls']:>8} {one['milliseconds']:>9.1f} {one['rows']:>8}"
            console.print(
                f"{numbers} {one['wal_bytes'] / 1000:>8.0f}  {one['statement'].strip()}",
                markup=False,
                soft_wrap=True,
            )
