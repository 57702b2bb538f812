"""How long the server waits for each step of a request."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timeouts:
    """The time limits of one server, in seconds."""

    head_seconds: float = 10.0
    identify_seconds: float = 5.0
    body_seconds: float = 10.0
    answer_seconds: float = 30.0
    read_seconds: float = 30.0  # a client that reads nothing of its answer for so long is cut off
    search_seconds: float = 2.0  # a rare filter may skip many signals: search at least so long
    idle_seconds: int = 5  # between two requests of a connection
    shutdown_seconds: int = 3  # for requests in progress at a stop


DEFAULT_TIMEOUTS = Timeouts()
