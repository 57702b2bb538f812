"""What went wrong, in one line on stderr, and the exit code that goes with it."""

import sys
import traceback

from syncline.cli.interrupts import Interrupted
from syncline.cli.output import flush_results
from syncline.text import one_line

FAILED = 1


def report(error: Exception, *, debug: bool) -> int:
    """Tell the error and return the exit code."""
    flush_results()
    if debug:
        traceback.print_exception(error)
    if type(error).__name__ == "NoArgsIsHelpError":  # a group of commands without a command
        print(error, file=sys.stderr)
    else:
        print(f"syncline: {one_line(explain(error))}", file=sys.stderr)
    return int(getattr(error, "exit_code", FAILED))


def explain(error: Exception) -> str:
    """Return a sentence that says what to do, or at least what happened."""
    from syncline.errors import DatabaseTlsError, EmbeddedError, SchemaError

    if hasattr(error, "format_message"):  # wrong use, told by the parser of arguments
        return _wrong_use(error)
    if isinstance(error, Interrupted):
        return "interrupted"
    told = ValueError | LookupError | SchemaError | EmbeddedError | DatabaseTlsError | Failure
    if isinstance(error, told):
        return str(error.args[0]) if error.args else type(error).__name__
    return _unforeseen(error)


class Failure(Exception):
    """The command could not do what was asked; its message says why."""


def _wrong_use(error: Exception) -> str:
    message: str = error.format_message()  # type: ignore[attr-defined]
    context = getattr(error, "ctx", None)
    command = f" (see `{context.command_path} --help`)" if context else ""
    return message.replace("Value error, ", "").rstrip(".") + command


def _unforeseen(error: Exception) -> str:
    from syncline.store.pool import is_passing

    message = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if getattr(error, "sqlstate", None):
        return f"the database refused: {error}"
    if is_passing(error):
        return f"the database cannot be reached: {message}"
    return f"{message} (`syncline --debug …` shows where)"
