"""Syncline: the sync engine that lives in your Postgres."""

from syncline.engine.app import Engine
from syncline.errors import Permanent, RateLimited, SyncError, Transient, Unauthorized
from syncline.model import Connection, Signal, SyncResult
from syncline.sdk.connector import Connector
from syncline.settings import Settings

__all__ = [
    "Connection",
    "Connector",
    "Engine",
    "Permanent",
    "RateLimited",
    "Settings",
    "Signal",
    "SyncError",
    "SyncResult",
    "Transient",
    "Unauthorized",
]
