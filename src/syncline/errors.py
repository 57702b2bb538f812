"""The exceptions, and what each asks for.

SyncError                 raised by a connector
├── RateLimited           wait, at least as long as the provider asked
├── Transient             try again with backoff
│   └── Deferred          raised by `self.http` while a call may not be made; no failure
├── Unauthorized          stop until a person signs in again (needs_reauth)
└── Permanent             stop until a person fixes the cause (error)

Refused                   raised to a caller; nothing was changed
├── Invalid               an argument breaks a rule: `field`, `reason` (a ValueError)
├── NotFound              no such row, or another tenant's: `what`, `id` (a LookupError)
└── Conflict              a stored row forbids it: `existing_id`, `reason` (a ValueError)
    ├── Changed           it changed since it was read: `version`
    └── PositionLost      this database does not know a follower's position

ContractError             a connector returned a page that cannot be stored; retried with backoff
SettingsError             a setting is out of bounds, or missing (a ValueError)
SchemaError               the database's schema is missing, older, or breaks this version
EmbeddedError             the embedded Postgres cannot be started
DatabaseTlsError          TLS with the database failed, or its certificate (an OSError)
TooSlow                   a query took too long; a narrower filter may help
"""

from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

Hint = float | Decimal | str | timedelta | None
"""A time to wait: seconds, as a number or as the text of a header, or a timedelta."""


class SyncError(Exception):
    """What a connector raises when it cannot return a page."""

    # For subclasses whose own __init__ does not call this one.
    message: str = ""
    details: Mapping[str, Any] | None = None

    def __init__(self, message: str = "", *, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.details = details


class RateLimited(SyncError):
    """The provider asks for a pause; the hint, if given, is the shortest wait."""

    retry_after_seconds: Any = None  # as it was given: a `Hint`
    scope: str | None = None

    def __init__(
        self,
        message: str = "",
        *,
        retry_after_seconds: Hint = None,
        scope: Literal["app"] | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        """With the scope "app" the limit is the application's: all its connections wait."""
        super().__init__(message, details=details)
        self.retry_after_seconds = retry_after_seconds
        self.scope = scope


class Transient(SyncError):
    """A temporary failure: the same call may succeed later."""


class Deferred(Transient):
    """No call may be made for so many seconds. The run ends, and counts as no failure.

    `scope` is the provider that is closed, or the budget that is used up.
    """

    def __init__(self, scope: str, seconds: float) -> None:
        super().__init__(f"{scope} may not be called for {seconds:.0f} s")
        self.scope = scope
        self.seconds = seconds


class Unauthorized(SyncError):
    """The credentials are no longer accepted."""


class Permanent(SyncError):
    """No retry helps until a person changes something."""


class ContractError(Exception):
    """A value cannot be stored: `where` names it, `reason` says why."""

    def __init__(self, reason: str = "", *, where: str | None = None) -> None:
        super().__init__(reason if where is None else f"{where}: {reason}")
        self.reason = reason
        self.where = where


class SettingsError(ValueError):
    """A setting is out of bounds; one line names it, its value and its bounds."""


class Refused(Exception):
    """The call was refused. The caller can correct it; nothing was changed."""

    @property
    def summary(self) -> str:
        """Return the reason without ids, so that equal refusals can be counted together."""
        return str(self)


class Invalid(Refused, ValueError):
    """An argument breaks a rule: `field` names it, as in `connections[3].external_id`."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(field, reason)
        self.field = field
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.field} {self.reason}"

    def within(self, place: str) -> "Invalid":
        """Return the same error for a field inside a larger argument."""
        return Invalid(f"{place}.{self.field}", self.reason)


class NotFound(Refused, LookupError):
    """There is no such row, or it belongs to another tenant."""

    def __init__(self, what: str, id: object) -> None:
        """`id` is what was asked for: an id, or a name."""
        super().__init__(what, id)
        self.what = what
        self.id = id

    def __str__(self) -> str:
        return f"there is no {self.what} {self.id}"

    @property
    def summary(self) -> str:
        return f"there is no such {self.what}"


class Conflict(Refused, ValueError):
    """The arguments are valid, but what is stored forbids the call.

    `existing_id` is the row that forbids it, if there is one.
    """

    def __init__(
        self,
        existing_id: UUID | None = None,
        what: str = "connection",
        reason: str = "exists already",
    ) -> None:
        super().__init__(existing_id, what, reason)
        self.existing_id = existing_id
        self.what = what
        self.reason = reason

    def __str__(self) -> str:
        if self.existing_id is None:
            return self.summary
        return f"{self.what} {self.existing_id} {self.reason}"

    @property
    def summary(self) -> str:
        return f"{self.what} {self.reason}"


class Changed(Conflict):
    """The connection was changed since it was read: read it again."""

    def __init__(self, existing_id: UUID, version: str) -> None:
        super().__init__(existing_id, reason=f"has changed; its version is now {version}")
        self.args = (existing_id, version)
        self.version = version


class PositionLost(Conflict):
    """This database does not know a follower's position: it is another one, or an older copy."""

    def __init__(self, reason: str) -> None:
        why = "the database is another one, or was restored: start again"
        super().__init__(None, "position", f"{reason}; {why}")
        self.args = (reason,)


class SchemaError(RuntimeError):
    """The database's schema does not fit this version; one line says what to do."""


class EmbeddedError(RuntimeError):
    """The embedded Postgres cannot be used; the message says why and what to do."""


class DatabaseTlsError(ConnectionError):
    """TLS with the database failed; one line says why and what to do."""


class TooSlow(Exception):
    """A query took longer than a person should have to wait."""

    def __init__(self, timeout: timedelta) -> None:
        super().__init__(timeout)
        self.timeout = timeout

    def __str__(self) -> str:
        seconds = self.timeout.total_seconds()
        return f"the query took more than {seconds:.0f} s; narrow the filter"
