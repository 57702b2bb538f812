"""What can go wrong, and what each error asks the engine to do.

SyncError                 raised by a connector
├── RateLimited           wait, at least as long as the provider asked
├── Transient             try again with backoff
├── Unauthorized          stop until somebody signs in again (needs_reauth)
└── Permanent             stop until somebody looks (error)

ContractError             a connector returned what cannot be stored; retried with backoff
SettingsError             a setting is out of bounds (a ValueError)
Conflict                  what stands there forbids it (a ValueError)
├── Changed               somebody changed it since it was read
└── PositionLost          a follower's position means nothing to this database
SchemaError               the database's schema is missing, older, or breaks this version
EmbeddedError             the embedded Postgres cannot be started
DatabaseTlsError          TLS with the database failed, or its certificate (an OSError)
TooSlow                   a question to the database took too long; a narrower one may do
"""

from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any

Hint = float | Decimal | str | timedelta | None
"""A time to wait: seconds, as a number or as the text of a header, or a timedelta."""


class SyncError(Exception):
    """What a connector raises when a page cannot be had."""

    # For subclasses whose own __init__ does not call this one.
    message: str = ""
    details: Mapping[str, Any] | None = None

    def __init__(self, message: str = "", *, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.details = details


class RateLimited(SyncError):
    """The provider asks for a pause; the hint, where given, is the least to wait."""

    retry_after_seconds: Any = None  # as it was given: a `Hint`

    def __init__(
        self,
        message: str = "",
        *,
        retry_after_seconds: Hint = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message, details=details)
        self.retry_after_seconds = retry_after_seconds


class Transient(SyncError):
    """A passing fault: the same call may succeed later."""


class Unauthorized(SyncError):
    """The credentials are no longer accepted."""


class Permanent(SyncError):
    """No retry can help until somebody changes something."""


class ContractError(Exception):
    """A connector returned something that cannot be stored; names the field and the reason."""


class SettingsError(ValueError):
    """A setting is out of bounds; one line names it, its value and its bounds."""


class Conflict(ValueError):
    """What was asked for is sound, but what stands there forbids it."""


class Changed(Conflict):
    """It was changed since it was read: read it again, and decide anew."""


class PositionLost(Conflict):
    """A follower's position means nothing here: the database is another one, or an older copy."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason}; it is another one, or was restored: start again")


class SchemaError(RuntimeError):
    """The database's schema does not fit this version; one line says what to do."""


class EmbeddedError(RuntimeError):
    """The embedded Postgres cannot be used; the message says why and what to do."""


class DatabaseTlsError(ConnectionError):
    """TLS with the database failed; one line says why and what to do."""


class TooSlow(Exception):
    """A question took longer than anybody should wait; a narrower one may do."""

    def __init__(self, timeout: timedelta) -> None:
        super().__init__(f"it took more than {timeout.total_seconds():.0f} s; narrow the filter")
