"""python -m faults [--quick] [--seed N] [--only WORDS] [--times N] [--output FOLDER] [--list]"""

import argparse
import asyncio
import sys
from pathlib import Path
from random import Random
from tempfile import mkdtemp

from rich.console import Console

from faults.kinds import Kind, load_catalogue
from faults.plot import draw
from faults.report import as_markdown, show
from faults.run import plan, run


def main() -> int:
    options = read_options()
    console = Console()
    catalogue = load_catalogue()
    if options.list:
        for kind in catalogue.values():
            console.print(f"{kind.name}: {kind.sentence}", highlight=False)
        return 0
    rng = Random(options.seed)
    injections = choose(catalogue, options, rng)
    folder = options.output or Path(mkdtemp(prefix="syncline-faults-"))
    folder.mkdir(parents=True, exist_ok=True)
    console.print(f"{len(injections)} faults, seed {options.seed}; logs and plot in {folder}")
    try:
        record, verdict = asyncio.run(
            run(injections, rng, folder.resolve(), console, quick=options.quick)
        )
    except KeyboardInterrupt:
        console.print("Interrupted; everything that was started has been stopped.")
        return 130
    show(console, catalogue, record, verdict)
    (folder / "throughput.svg").write_text(draw(record))
    (folder / "verdict.md").write_text(as_markdown(options.seed, record, verdict))
    return 0 if verdict.is_good else 1


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m faults", description="Inject faults.")
    parser.add_argument("--quick", action="store_true", help="each kind once, short outages")
    parser.add_argument("--seed", type=int, default=1, help="decides the order (default: 1)")
    parser.add_argument("--only", help="only kinds whose name contains these words")
    parser.add_argument("--times", type=int, help="how often to inject each kind")
    parser.add_argument("--output", type=Path, help="folder for logs, plot and tables")
    parser.add_argument("--list", action="store_true", help="list the kinds and exit")
    return parser.parse_args()


def choose(catalogue: dict[str, Kind], options: argparse.Namespace, rng: Random) -> list[Kind]:
    chosen = {name: kind for name, kind in catalogue.items() if (options.only or "") in name}
    if options.times is None:
        return plan(chosen, rng, quick=options.quick)
    injections = [kind for kind in chosen.values() for _ in range(options.times)]
    rng.shuffle(injections)
    return injections


if __name__ == "__main__":
    sys.exit(main())
