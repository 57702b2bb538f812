"""The command line: `syncline …`."""

import os
import signal
import sys

from syncline.memory_dumps import forbid_memory_dumps

SERVICES = {"run", "up"}  # they run until they are stopped, so a signal is no failure


def main() -> None:
    """Run the command line and exit with its code."""
    _exit_on_signals()
    forbid_memory_dumps()  # before any key is read
    # Imported late: from here on Ctrl-C ends quietly, without a traceback through the imports.
    from syncline.cli.app import app

    app()


def _exit_on_signals() -> None:
    """Exit at once on a signal: until a command starts, there is nothing to clean up."""

    def leave(*_: object) -> None:
        os._exit(0 if SERVICES.intersection(sys.argv[1:]) else 1)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, leave)
