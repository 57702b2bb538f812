"""The command line: `syncline …`."""

import os
import signal
import sys

from syncline.memory_dumps import forbid_memory_dumps

SERVICES = {"run", "up"}  # to be stopped is what they wait for, so it is no failure


def main() -> None:
    """Run the command that the arguments name, and exit with its code."""
    _leave_at_once_on_a_signal()
    forbid_memory_dumps()  # before a key is read
    # Imported only now: from here on Ctrl-C ends in silence, not in a traceback through imports.
    from syncline.cli.app import app

    app()


def _leave_at_once_on_a_signal() -> None:
    """Until a command takes over there is nothing to tidy up."""

    def leave(*_: object) -> None:
        os._exit(0 if SERVICES.intersection(sys.argv[1:]) else 1)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, leave)
