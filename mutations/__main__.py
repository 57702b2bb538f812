"""Show that a test fails without each protection: python -m mutations [--only WORDS]."""

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from mutations.catalogue import MUTATIONS
from mutations.mutation import Mutation

ROOT = Path(__file__).parents[1]
ONE_MODE = "not [portable and not [postgres"  # the protection is gone in every mode
TEST_TIMEOUT_SECONDS = 60
PASSED, FAILED = 0, 1  # exit codes of pytest
FAILED_TEST = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)
FAILED_SEED = re.compile(r"^seed (\d+) failed: (.*)$", re.MULTILINE)
SIMULATED = ("clock.py", "engine/", "policy/", "store/")  # the code that the simulation runs


@dataclass(frozen=True, slots=True)
class Verdict:
    """What noticed: a test, a seed of the simulation, or nothing."""

    mutation: Mutation
    test: str | None
    seed: str | None
    is_skipped: bool = False  # this machine cannot run the tests

    @property
    def is_noticed(self) -> bool:
        return self.test is not None or self.seed is not None

    def __str__(self) -> str:
        nobody = "(its tests are skipped here)" if self.is_skipped else "NOTHING"
        return f"{self.mutation.protection}: {self.test or self.seed or nobody}"


class BrokenTests(Exception):
    """The tests prove nothing: they fail without any change, or cannot be run."""


def main() -> int:
    options = _read_options()
    console = Console()
    chosen = [one for one in MUTATIONS if options.only in one.protection]
    _check_tests(console, chosen, options.processes)
    with Progress(*_columns(), console=console) as progress:
        bar = progress.add_task("protections", total=len(chosen))

        def judge(mutation: Mutation) -> Verdict:
            verdict = _judge(mutation, seeds=options.seeds)
            progress.console.print(str(verdict), markup=False, highlight=False, soft_wrap=True)
            progress.advance(bar)
            return verdict

        with ThreadPoolExecutor(options.processes) as pool:
            verdicts = list(pool.map(judge, chosen))
    _show(console, verdicts)
    return 0 if all(one.is_noticed or one.is_skipped for one in verdicts) else 1


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="mutations", description=__doc__)
    parser.add_argument("--only", default="", help="part of a protection's name")
    parser.add_argument("--processes", type=int, default=2, help="how many to test at once")
    parser.add_argument(
        "--seeds", type=int, default=0, help="also run this many seeds of the simulation"
    )
    return parser.parse_args()


def _check_tests(console: Console, chosen: Sequence[Mutation], processes: int) -> None:
    """Run the tests on the unchanged source: one that fails anyway proves nothing."""
    tests = sorted({one.test for one in chosen})
    console.print(f"{len(chosen)} protections; first, their tests on the unchanged source")
    with TemporaryDirectory(prefix="syncline-mutation-") as folder:
        told = _run_tests(_copy_source(folder), tests, "-n", str(processes))
    if told.returncode != PASSED:
        raise BrokenTests(told.stdout[-4000:] + told.stderr[-4000:])


def _judge(mutation: Mutation, *, seeds: int) -> Verdict:
    with TemporaryDirectory(prefix="syncline-mutation-") as folder:
        source = _copy_source(folder)
        path = source / "syncline" / mutation.file
        path.write_text(mutation.switch_off(path.read_text()))
        _run(source, "-c", "import syncline.app").check_returncode()
        told = _run_tests(source, [mutation.test], "-x")
        if told.returncode not in (PASSED, FAILED):
            raise BrokenTests(f"{mutation.protection}: {told.stdout}{told.stderr}")
        found = FAILED_TEST.search(told.stdout)
        is_simulated = seeds > 0 and mutation.file.startswith(SIMULATED)
        return Verdict(
            mutation,
            found[1] if found else None,
            _failing_seed(source, seeds) if is_simulated else None,
            is_skipped=" passed" not in told.stdout and not found,
        )


def _copy_source(folder: str) -> Path:
    source = Path(folder) / "src"
    shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
    return source


def _run_tests(
    source: Path, tests: Iterable[str], *options: str
) -> "subprocess.CompletedProcess[str]":
    return _run(
        source,
        *("-m", "pytest", "-q", "--tb=no", "-p", "no:cacheprovider", *options),
        *("-k", ONE_MODE, "-m", "not integration"),
        *("--timeout", str(TEST_TIMEOUT_SECONDS), *tests),
    )


def _failing_seed(source: Path, seeds: int) -> str | None:
    told = _run(source, *("-m", "simulation", "--seeds", str(seeds), "--stop", "--processes", "1"))
    found = FAILED_SEED.search(told.stdout)
    return f"seed {found[1]}: {found[2]}" if found else None


def _run(source: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run Python in the project's folder, with the copy in place of the source."""
    path = os.pathsep.join(map(str, (source, ROOT / "tests")))
    return subprocess.run(  # noqa: S603  (this interpreter, with arguments of our own)
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


def _columns() -> tuple[BarColumn | TextColumn | MofNCompleteColumn | TimeElapsedColumn, ...]:
    return TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()


def _show(console: Console, verdicts: Sequence[Verdict]) -> None:
    table = Table("Without", "that is", "a test notices", "the simulation notices")
    for one in verdicts:
        row = one.mutation.protection, one.mutation.without_it, one.test or "-", one.seed or "-"
        table.add_row(*map(escape, row))
    console.print(table)
    for one in verdicts:
        if one.is_skipped:
            console.print(f"No test of {one.mutation.protection} can be run here.", style="yellow")
        elif not one.is_noticed:
            console.print(f"No test fails without {one.mutation.protection}.", style="red")


if __name__ == "__main__":
    sys.exit(main())
