"""python -m fleet [fill URL | show] [--connections N] [--output FOLDER]

Without a command: prove that the fleet's troubles are told everywhere, and fast enough.
"""

import argparse
import asyncio
import sys
import time
from pathlib import Path
from tempfile import mkdtemp

from fleet.fill import CONNECTIONS, fill, rows
from fleet.stage import open_stage


def main() -> int:
    options = read_options()
    try:
        if options.command == "fill":
            return asyncio.run(fill_database(options))
        return asyncio.run(show(options))
    except KeyboardInterrupt:
        print("Interrupted; everything that was started has been stopped.")
        return 130


async def fill_database(options: argparse.Namespace) -> int:
    began = time.monotonic()
    await fill(options.url, options.connections)
    print(f"{await rows(options.url)} in {time.monotonic() - began:.1f} s")
    return 0


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
    parser.add_argument("command", nargs="?", choices=["fill", "show"], default="show")
    parser.add_argument("url", nargs="?", help="a migrated, empty database to fill")
    parser.add_argument("--connections", type=int, default=CONNECTIONS)
    parser.add_argument("--output", type=Path, help="folder for logs and figures")
    options = parser.parse_args()
    if options.command == "fill" and options.url is None:
        parser.error("fill needs the URL of a database")
    return options


if __name__ == "__main__":
    sys.exit(main())
