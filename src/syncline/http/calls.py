"""The calls that a run makes: all of them counted, the first and the last ones kept.

Only calls that are shown are turned into text, so that a run that succeeds pays for nothing else.
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from syncline.http.addresses import shown_url

if TYPE_CHECKING:
    from syncline.http.url import Url

Scrub = Callable[[str, int], str]
"""Masks the secrets of a connection in text, and cuts it to a number of characters."""

FIRST, LAST = 20, 5  # that are kept
LONGEST_URL, LONGEST_METHOD = 500, 20


class Made(NamedTuple):
    """A call, with the function that masks the secrets of its connection."""

    method: str
    url: "Url"
    status: int | None
    seconds: float
    failure: str | None
    scrub: Scrub


class CallLog:
    """The calls of one run."""

    __slots__ = ("_first", "_last", "count")

    def __init__(self) -> None:
        self.count = 0
        self._first: list[Made] = []
        self._last: deque[Made] = deque(maxlen=LAST)

    def add(self, call: Made) -> None:
        self.count += 1
        (self._first if self.count <= FIRST else self._last).append(call)

    def shown(self) -> list[dict[str, Any]]:
        """Return the kept calls as JSON values, without secrets."""
        return [_shown(call) for call in (*self._first, *self._last)]


def _shown(call: Made) -> dict[str, Any]:
    shown = {
        "method": call.method[:LONGEST_METHOD],
        "url": call.scrub(shown_url(call.url), LONGEST_URL),
        "status": call.status,
        "milliseconds": round(1000 * call.seconds),
    }
    return shown if call.failure is None else {**shown, "failure": call.failure}
