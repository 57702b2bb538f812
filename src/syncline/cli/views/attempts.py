"""The failed attempts of a job: a table of all, and the calls and the trace of the last one."""

from collections.abc import Sequence

from syncline.cli.output import print_table
from syncline.http.calls import LAST
from syncline.model import Attempt
from syncline.text import error_text, printable


def show_attempts(attempts: Sequence[Attempt]) -> None:
    """Print failed attempts, the last one first."""
    print()
    print_table(
        ("Failed", "Took", "Worker", "Calls", "Signals", "Error"),
        [
            (
                *(one.ended_at, _milliseconds(one.milliseconds), one.worker),
                *(one.call_count, one.signals, error_text(one.error)),
            )
            for one in attempts
        ],
        dispensable=("Signals", "Worker", "Calls"),
    )
    _show_calls(attempts[0])
    if trace := attempts[0].trace:
        print()
        for line in trace.splitlines():
            print(printable(line))


def _show_calls(attempt: Attempt) -> None:
    if not attempt.calls:
        return
    print()
    print_table(
        ("Call", "URL", "Status", "Took"),
        [
            (
                *(call["method"], call["url"], call["status"] or call.get("failure")),
                _milliseconds(call["milliseconds"]),
            )
            for call in attempt.calls
        ],
        dispensable=("Took",),
    )
    if left_out := attempt.call_count - len(attempt.calls):
        print(f"{left_out:,} calls before the last {LAST} are left out.")


def _milliseconds(count: int | None) -> str | None:
    return None if count is None else f"{count:,} ms"
