"""When a settle that failed is tried again, and what its job is told if it is not."""

from syncline.clock import monotonic
from syncline.store.errors import WriteLost, is_passing, is_timeout, lies_in_rows
from syncline.store.pool import COMMAND_TIMEOUT_SECONDS

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 2.0
MOST_TIMEOUTS = 3  # of one page, while the server answers others


class SettleRetry:
    """Counts the failures of one settle, and says which of them is the last."""

    def __init__(self, lease_seconds: float) -> None:
        self._lease_seconds = lease_seconds
        self._failing_since: float | None = None
        self._timeouts = 0
        self._pause = FIRST_PAUSE_SECONDS / 2

    def must_end(self, error: BaseException, *, server_answered_at: float) -> bool:
        """Return whether another try is pointless.

        A value that cannot be stored never will be. A server that is away comes back, so it only
        costs time. If it answers others but not this, the statement is too large. An unknown
        error, or a write of the wrong number of rows, is retried for as long as a lease
        lasts.
        """
        now = monotonic()
        if self._failing_since is None:
            self._failing_since = now
        if is_timeout(error):
            self._timeouts += 1
            return self._timeouts >= MOST_TIMEOUTS and server_answered_at > self._failing_since
        if is_passing(error) and not isinstance(error, WriteLost):
            return False
        is_refused = lies_in_rows(error) and not isinstance(error, WriteLost)
        return is_refused or now - self._failing_since >= self._lease_seconds

    def next_pause_seconds(self) -> float:
        self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)
        return self._pause


def describe_refusal(error: BaseException) -> str:
    """Return the error of a job whose page could not be stored."""
    if is_timeout(error):
        return (
            f"the page could not be stored: the database timed out {MOST_TIMEOUTS} times "
            f"({COMMAND_TIMEOUT_SECONDS:g} s each); return smaller pages"
        )
    return f"the page could not be stored: {error}"
