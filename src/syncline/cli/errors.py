"""How a command reports an error: one line on stderr, and an exit code."""

import sys
import traceback

from syncline.cli.interrupts import Interrupted
from syncline.cli.output import flush_results
from syncline.errors import (
    DatabaseTlsError,
    EmbeddedError,
    Refused,
    SchemaError,
    SettingsError,
    TooSlow,
)
from syncline.redaction import mask_secrets
from syncline.text import one_line

FAILED = 1


class Failure(Exception):
    """The command failed; the message says why."""


# Their messages say what to do. Anything else is a bug, or the database.
EXPECTED = (
    *(Failure, Refused, SettingsError, TooSlow),
    *(SchemaError, EmbeddedError, DatabaseTlsError),
)


def report(error: Exception, *, debug: bool) -> int:
    """Print the error in one line and return the exit code."""
    flush_results()
    if debug:
        trace = "".join(traceback.format_exception(error))
        print(mask_secrets(trace), end="", file=sys.stderr)
    if type(error).__name__ == "NoArgsIsHelpError":  # a group of commands without a command
        print(error, file=sys.stderr)
    else:
        print(f"syncline: {one_line(explain(error))}", file=sys.stderr)
    return int(getattr(error, "exit_code", FAILED))


def explain(error: Exception) -> str:
    """Return a sentence that says what to do, or at least what happened."""
    if hasattr(error, "format_message"):  # wrong use, found by the parser of arguments
        return _wrong_use(error)
    if isinstance(error, Interrupted):
        return "interrupted"
    if isinstance(error, EXPECTED):
        return str(error) or type(error).__name__
    return _unexpected(error)


def _wrong_use(error: Exception) -> str:
    message: str = error.format_message()  # type: ignore[attr-defined]
    context = getattr(error, "ctx", None)
    command = f" (see `{context.command_path} --help`)" if context else ""
    return message.replace("Value error, ", "").rstrip(".") + command


def _unexpected(error: Exception) -> str:
    from syncline.services.availability import is_unavailable

    message = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if getattr(error, "sqlstate", None):
        return f"the database refused: {error}"
    if is_unavailable(error):
        return f"the database cannot be reached: {message}"
    return f"{message} (`syncline --debug …` shows where)"
