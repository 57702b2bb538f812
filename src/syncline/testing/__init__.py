"""For tests of your own: a clock you set, connectors you script, a database you throw away."""

from syncline.testing.database import temporary_database
from syncline.testing.fakes import ManualClock, ScriptedConnector

__all__ = ["ManualClock", "ScriptedConnector", "temporary_database"]
