"""Plays recorded HTTP calls back to a connector in a test."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from syncline.sdk.connector import Connector
from syncline.testing.recorder import Masker, Player, load_calls
from syncline.testing.trial import Wrap, equip

C = TypeVar("C", bound=Connector)


def replay(connector: C, recording: str | Path, credentials: Any = None) -> C:
    """Return the connector, whose HTTP calls are answered from a recording and go nowhere else.

    Pass the credentials of the test's connection where a secret stands in an address or a body.
    """
    equip(connector, answers_from(recording, credentials)())
    return connector


def answers_from(recording: str | Path, credentials: Any = None) -> Callable[[], Wrap]:
    """Return a maker of transports, each of which plays the recording from its beginning."""
    path = Path(recording)
    calls, masker = load_calls(path), Masker(credentials)

    def open_player() -> Wrap:
        player = Player(calls, masker, path.name)  # one for all clients of a connector
        return lambda _: player

    return open_player
