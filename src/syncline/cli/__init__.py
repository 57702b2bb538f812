"""The command line: `syncline …`."""


def main() -> None:
    """Run the command that the arguments name, and exit with its code."""
    from syncline.cli.interrupts import leave_at_once_on_a_signal

    # Everything else is imported afterwards: from here on Ctrl-C ends in silence, not in a
    # traceback through somebody's import.
    leave_at_once_on_a_signal()

    from syncline.cli.app import app

    app()
