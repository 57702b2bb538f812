"""Show that every protection is missed when it is gone: python -m mutations [--only WORDS]."""

import argparse
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from mutations.catalogue import MUTATIONS, Mutation

ROOT = Path(__file__).parents[1]
ONE_MODE = "not portable and not postgres"  # a protection that is gone is gone in every mode
TEST_TIMEOUT_SECONDS = 60
FAILED_TEST = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
FAILED_SEED = re.compile(r"^seed (\d+) failed: (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Who noticed: a test, a seed of the simulation, or nobody."""

    mutation: Mutation
    test: str | None
    seed: str | None


class DoesNotApply(Exception):
    """The source no longer holds the text that a mutation changes."""


def main() -> int:
    options = _read_options()
    console = Console()
    chosen = [one for one in MUTATIONS if options.only in one.protection]
    verdicts = []
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("", total=len(chosen))
        for mutation in chosen:
            progress.update(bar, description=f"without {mutation.protection}")
            verdicts.append(_judge(mutation, seeds=options.seeds))
            progress.advance(bar)
    _show(console, verdicts)
    return 0 if all(one.test or one.seed for one in verdicts) else 1


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="mutations", description=__doc__)
    parser.add_argument("--only", default="", help="part of a protection's name")
    parser.add_argument("--seeds", type=int, default=40, help="seeds that the simulation may try")
    return parser.parse_args()


def _judge(mutation: Mutation, *, seeds: int) -> Verdict:
    with TemporaryDirectory(prefix="syncline-mutation-") as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source)
        _switch_off(mutation, source / "syncline" / mutation.file)
        _run(source, "-c", "import syncline.engine.app").check_returncode()
        return Verdict(mutation, _failing_test(mutation, source), _failing_seed(source, seeds))


def _switch_off(mutation: Mutation, path: Path) -> None:
    text = path.read_text()
    for before, after in mutation.changes:
        if text.count(before) != 1:
            raise DoesNotApply(f"{mutation.protection}: {mutation.file} does not hold {before!r}")
        text = text.replace(before, after)
    path.write_text(text)


def _failing_test(mutation: Mutation, source: Path) -> str | None:
    told = _run(
        source,
        *("-m", "pytest", "-x", "-q", "--tb=no", "-p", "no:cacheprovider", "-k", ONE_MODE),
        *("--timeout", str(TEST_TIMEOUT_SECONDS), *mutation.tests),
    )
    found = FAILED_TEST.search(told.stdout)
    return found[1] if found else None


def _failing_seed(source: Path, seeds: int) -> str | None:
    told = _run(source, *("-m", "simulation", "--seeds", str(seeds), "--stop"))
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


def _show(console: Console, verdicts: list[Verdict]) -> None:
    table = Table("Without", "that is", "a test notices", "the simulation notices")
    for one in verdicts:
        table.add_row(
            one.mutation.protection, one.mutation.without_it, one.test or "-", one.seed or "-"
        )
    console.print(table)
    for one in verdicts:
        if not (one.test or one.seed):
            console.print(f"Nobody misses {one.mutation.protection}.", style="red")


if __name__ == "__main__":
    sys.exit(main())
