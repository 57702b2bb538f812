"""Replay recorded HTTP requests to a connector in a test."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from syncline.http.environment import Intercept
from syncline.sdk.connector import Connector
from syncline.testing.recorder import Masker, Player, load_calls
from syncline.testing.trial import prepare_trial

C = TypeVar("C", bound=Connector)


def replay(connector: C, recording: str | Path, credentials: Any = None) -> C:
    """Return the connector with its HTTP requests answered from a recording only.

    Pass the connection's credentials if a secret is part of a URL or a body.
    """
    prepare_trial(connector, answers_from(recording, credentials)())
    return connector


def answers_from(recording: str | Path, credentials: Any = None) -> Callable[[], Intercept]:
    """Return a factory of interceptors, each of which replays the recording from the start."""
    path = Path(recording)
    calls, masker = load_calls(path), Masker(credentials)
    return lambda: Player(calls, masker, path.name)  # one for all clients of a connector
