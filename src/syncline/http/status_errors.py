"""What an answer means: nothing, or the error that the engine knows how to act upon."""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from httpx2 import Response

from syncline.errors import Permanent, RateLimited, SyncError, Transient, Unauthorized
from syncline.http.rate_limits import is_exhausted, wait_in_body, wait_seconds

ErrorMap = Callable[[Response], SyncError | None]
"""A connector's own reading of a failed answer; None leaves it to the usual one."""

PASSING = {408, 409, 423, 425}
MAX_MESSAGE = 20_000  # not what is shown: the client masks secrets before it cuts
LARGEST_MESSAGE = 65_536  # bytes of a body that is looked into for one
MESSAGE_KEYS = ("message", "error_description", "detail", "error", "title", "reason", "errors")


def error_of(answer: Response, *, asked: str, now: datetime) -> SyncError | None:
    """Return what a complete answer asks for, or None where it is what was asked for."""
    status = answer.status_code
    if status < 300 or status == 304:
        return None
    text = f"{asked} answered {status}{_told(answer)}"
    details = {"status": status}
    if status == 401:
        return Unauthorized(text, details=details)
    if _is_rate_limit(answer):
        return RateLimited(text, retry_after_seconds=_wait(answer, now), details=details)
    if status in PASSING or status >= 500:
        return Transient(text, details=details)
    return Permanent(text, details=details)


def message_of(answer: Response) -> str:
    """Return what the body says about a failure, as far as it is meant for people."""
    body = body_of(answer)
    if body is not None:
        return _message_in(body)[:MAX_MESSAGE]
    if answer.headers.get("content-type", "").startswith("text/plain"):
        told = answer.content[: 4 * MAX_MESSAGE].decode(answer.encoding or "utf-8", "replace")
        return " ".join(told.split())[:MAX_MESSAGE]
    return ""


def body_of(answer: Response) -> Any:
    """Return the JSON of an answer, or None where it holds none, or too much for a message."""
    if len(answer.content) > LARGEST_MESSAGE:
        return None
    try:
        return json.loads(answer.content)
    except (ValueError, RecursionError):
        return None


def _told(answer: Response) -> str:
    message = message_of(answer)
    return f": {message}" if message else ""


def _is_rate_limit(answer: Response) -> bool:
    """Return whether the provider asks for a pause; some say so with 403 or 503 and a header."""
    if answer.status_code == 429:
        return True
    asks = "retry-after" in answer.headers or is_exhausted(answer.headers)
    return answer.status_code in (403, 503) and asks


def _wait(answer: Response, now: datetime) -> float | None:
    seconds = wait_seconds(answer.headers, now=now)
    return wait_in_body(body_of(answer)) if seconds is None else seconds


def _message_in(body: Any, depth: int = 0) -> str:
    if isinstance(body, str):
        return " ".join(body.split())
    if depth > 3:
        return ""
    if isinstance(body, list):
        return _message_in(body[0], depth + 1) if body else ""
    if isinstance(body, dict):
        told = (_message_in(body[key], depth + 1) for key in MESSAGE_KEYS if key in body)
        return next((text for text in told if text), "")
    return ""
