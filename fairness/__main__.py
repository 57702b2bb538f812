"""python -m fairness [--quick] [--seed N] [--only WORDS] [--output FOLDER] [--list]"""

import argparse
import asyncio
import sys
import time
from pathlib import Path
from tempfile import mkdtemp

from rich.console import Console

from fairness import model
from fairness.cases import load_cases
from fairness.run import as_markdown, run_all


def main() -> int:
    options = read_options()
    console = Console()
    cases = [case for case in load_cases() if (options.only or "") in case.name]
    if options.quick:
        cases = [case for case in cases if case.is_quick]
    if options.list:
        for case in cases:
            console.print(f"{case.name}: {case.promise}", highlight=False)
        return 0
    folder = (options.output or Path(mkdtemp(prefix="syncline-fairness-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    console.print(f"{len(cases)} cases; logs, figures and plots in {folder}")
    began = time.monotonic()
    try:
        results = asyncio.run(run_all(cases, folder, options.seed, console, is_quick=options.quick))
    except KeyboardInterrupt:
        console.print("Interrupted; everything that was started has been stopped.")
        return 130
    seconds = time.monotonic() - began
    (folder / "figures.md").write_text(as_markdown(results, seconds))
    for plot in [model.draw(), *(plot for result in results for plot in result.plots)]:
        (folder / f"{plot.name}.svg").write_text(plot.draw())
    missed = [result.case.name for result in results if not result.is_good]
    console.print(f"{len(cases) - len(missed)} of {len(cases)} cases kept, {seconds:.0f} s.")
    return 1 if missed else 0


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m fairness", description="Prove fairness.")
    parser.add_argument("--quick", action="store_true", help="the short form")
    parser.add_argument("--seed", type=int, default=1, help="decides whom to kill (default: 1)")
    parser.add_argument("--only", help="only cases whose name contains these words")
    parser.add_argument("--output", type=Path, help="folder for logs, figures and plots")
    parser.add_argument("--list", action="store_true", help="list the cases and exit")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
