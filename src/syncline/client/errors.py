"""Problems of the API as exceptions with fields."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID


@dataclass(frozen=True, slots=True)
class FieldError:
    """A field of the request, and the rule that it breaks."""

    field: str
    rule: str


class ClientError(Exception):
    """A call failed."""


class Unreachable(ClientError):
    """No answer came. Unless nothing was sent, the call may have taken effect."""


class ApiError(ClientError):
    """The server refused a call, or failed. `code` says why in a word that does not change."""

    def __init__(self, status: int, problem: Mapping[str, Any], retry_after: float | None) -> None:
        self.status = status
        self.code = str(problem.get("code", "http"))
        self.detail = str(problem.get("detail", f"the server answered {status}"))
        self.trace_id: str | None = problem.get("trace_id")
        self.errors = tuple(
            FieldError(str(one["field"]), str(one["rule"])) for one in problem.get("errors") or ()
        )
        existing_id = problem.get("existing_id")
        self.existing_id = UUID(existing_id) if existing_id else None
        self.retry_after = retry_after
        super().__init__(f"{status} {self.code}: {self.detail}")


class Invalid(ApiError):
    """A field breaks a rule: `field` and `reason`, or each of them in `errors`."""

    @property
    def field(self) -> str:
        return self.errors[0].field if self.errors else ""

    @property
    def reason(self) -> str:
        return self.errors[0].rule if self.errors else self.detail


class KeyRefused(ApiError):
    """The key is missing, unknown, expired or revoked."""


class Forbidden(ApiError):
    """The key may not do this."""


class NotFound(ApiError):
    """It does not exist, or it belongs to another tenant."""


class Conflict(ApiError):
    """What is stored forbids the call; `existing_id` is the row, if there is one."""


class Changed(Conflict):
    """It has changed since it was read: read it again."""


class PositionLost(Conflict):
    """The database does not know a follower's position: start again."""


class TooManyRequests(ApiError):
    """Too many requests; `retry_after` says for how many seconds."""


class Unavailable(ApiError):
    """The server or its database cannot answer now."""


KINDS: dict[int, type[ApiError]] = {
    401: KeyRefused,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: PositionLost,
    412: Changed,
    422: Invalid,
    429: TooManyRequests,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}


def error_of(status: int, body: bytes, retry_after: str) -> ApiError:
    """Return the exception for an answer; a proxy's answer may be no problem document."""
    seconds = float(retry_after) if retry_after.isdecimal() else None
    try:
        problem = json.loads(body)
    except ValueError:
        problem = None
    kind = KINDS.get(status, ApiError)
    return kind(status, problem if isinstance(problem, dict) else {}, seconds)
