"""python -m fleet [prove | fill URL | show] [--connections N] [--output FOLDER]

Without a command: prove that the fleet's troubles are told everywhere, and fast enough.
"""

import argparse
import asyncio
import sys
import time
from pathlib import Path
from tempfile import mkdtemp

from fleet.fill import CONNECTIONS, fill, rows
from fleet.report import is_kept, taken_by, told_by
from fleet.stage import open_stage
from fleet.times import measure
from fleet.watch import be_slow, make_troubles, watch

WELL_SECONDS = 20  # before the troubles begin


def main() -> int:
    options = read_options()
    try:
        if options.command == "fill":
            return asyncio.run(fill_database(options))
        if options.command == "show":
            return asyncio.run(show(options))
        return asyncio.run(prove(options))
    except KeyboardInterrupt:
        print("Interrupted; everything that was started has been stopped.")
        return 130


async def fill_database(options: argparse.Namespace) -> int:
    began = time.monotonic()
    await fill(options.url, options.connections)
    print(f"{await rows(options.url)} in {time.monotonic() - began:.1f} s")
    return 0


async def prove(options: argparse.Namespace) -> int:
    """Make the troubles; print what each place says of them, and how long every page takes."""
    began = time.monotonic()
    folder = folder_of(options)
    async with open_stage(folder, options.connections) as stage:
        print(f"{await rows(stage.url)} after {time.monotonic() - began:.0f} s", flush=True)
        await stage.start_all()
        await be_slow(stage)
        await asyncio.sleep(WELL_SECONDS)
        await make_troubles(stage)
        seen = await watch(stage)
        print(told_by(seen), flush=True)
        timings, failed = await measure(stage)
        complaints = [*failed, *stage.complaints()]
    print(taken_by(timings), *complaints, sep="\n")
    (folder / "figures.md").write_text(f"{told_by(seen)}\n{taken_by(timings)}")
    print(f"{time.monotonic() - began:.0f} s; logs and figures in {folder}")
    return 0 if is_kept(seen, timings, complaints) else 1


async def show(options: argparse.Namespace) -> int:
    """Serve the fleet until Ctrl-C."""
    async with open_stage(folder_of(options), options.connections) as stage:
        await stage.start_all()
        print(f"{stage.address} on {stage.url}; Ctrl-C stops everything.", flush=True)
        await asyncio.Event().wait()
    return 0


def folder_of(options: argparse.Namespace) -> Path:
    folder: Path = (options.output or Path(mkdtemp(prefix="syncline-fleet-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m fleet", description="A large fleet.")
    parser.add_argument("command", nargs="?", choices=["fill", "show", "prove"], default="prove")
    parser.add_argument("url", nargs="?", help="a migrated, empty database to fill")
    parser.add_argument("--connections", type=int, default=CONNECTIONS)
    parser.add_argument("--output", type=Path, help="folder for logs and figures")
    options = parser.parse_args()
    if options.command == "fill" and options.url is None:
        parser.error("fill needs the URL of a database")
    return options


if __name__ == "__main__":
    sys.exit(main())
