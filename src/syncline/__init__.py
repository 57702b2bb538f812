"""Syncline: the sync engine that lives in your Postgres."""

TYPE_CHECKING = False  # type checkers read it as typing's own, which is slow to import

__all__ = [
    "Conflict",
    "Connection",
    "Connector",
    "Engine",
    "Invalid",
    "NotFound",
    "Permanent",
    "RateLimited",
    "Refused",
    "Settings",
    "Signal",
    "SyncError",
    "SyncResult",
    "Transient",
    "Unauthorized",
]

if TYPE_CHECKING:
    from syncline.app import Engine
    from syncline.errors import (
        Conflict,
        Invalid,
        NotFound,
        Permanent,
        RateLimited,
        Refused,
        SyncError,
        Transient,
        Unauthorized,
    )
    from syncline.model import Connection, Signal, SyncResult
    from syncline.sdk.connector import Connector
    from syncline.settings import Settings
else:
    _HOMES = {
        "syncline.app": ("Engine",),
        "syncline.errors": (
            *("Permanent", "RateLimited", "SyncError", "Transient", "Unauthorized"),
            *("Conflict", "Invalid", "NotFound", "Refused"),
        ),
        "syncline.model": ("Connection", "Signal", "SyncResult"),
        "syncline.sdk.connector": ("Connector",),
        "syncline.settings": ("Settings",),
    }

    def __getattr__(name):
        """Import a public name when it is first asked for, so that `syncline --help` needs none."""
        from importlib import import_module

        for home, names in _HOMES.items():
            if name in names:
                value = globals()[name] = getattr(import_module(home), name)
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__():
        return sorted({*globals(), *__all__})
