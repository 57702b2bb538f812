"""For your own tests: a manual clock, scripted connectors, recordings, temporary databases."""

from syncline.testing.database import temporary_database
from syncline.testing.fakes import ManualClock, ScriptedConnector
from syncline.testing.replay import replay
from syncline.testing.trial import TrialPage, take_pages

__all__ = [
    "ManualClock",
    "ScriptedConnector",
    "TrialPage",
    "replay",
    "take_pages",
    "temporary_database",
]
