"""What a response means: success, or the error that the engine acts on."""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from syncline.errors import Permanent, RateLimited, SyncError, Transient, Unauthorized
from syncline.http.messages import Response
from syncline.http.rate_limits import is_exhausted, wait_in_body, wait_seconds

ErrorMap = Callable[[Response], SyncError | None]
"""A connector's own error for a failed response; None means the usual one."""

TEMPORARY = {408, 409, 423, 425}
MAX_MESSAGE = 20_000  # the client masks secrets first, then cuts to what is shown
MAX_PARSED_BYTES = 65_536  # of a body, to find a message
MESSAGE_KEYS = ("message", "error_description", "detail", "error", "title", "reason", "errors")


def error_of(response: Response, *, described: str, now: datetime) -> SyncError | None:
    """Return the error that a response means, or None for a success."""
    status = response.status_code
    if is_good(status):
        return None
    text = f"{described} answered {status}{_message_suffix(response)}"
    details = {"status": status}
    if status == 401:
        return Unauthorized(text, details=details)
    if _is_rate_limit(response):
        return RateLimited(text, retry_after_seconds=_wait(response, now), details=details)
    if status in TEMPORARY or status >= 500:
        return Transient(text, details=details)
    return Permanent(text, details=details)


def is_good(status: int) -> bool:
    return status < 300 or status == 304


def message_of(response: Response) -> str:
    """Return the body's error message for people, or nothing."""
    body = body_of(response)
    if body is not None:
        return _message_in(body)[:MAX_MESSAGE]
    if response.headers.get("content-type", "").startswith("text/plain"):
        text = response.content[: 4 * MAX_MESSAGE].decode(response.encoding, "replace")
        return " ".join(text.split())[:MAX_MESSAGE]
    return ""


def body_of(response: Response) -> Any:
    """Return the parsed JSON body, or None if it is not JSON or too large for a message."""
    if len(response.content) > MAX_PARSED_BYTES:
        return None
    try:
        return json.loads(response.content)
    except (ValueError, RecursionError):
        return None


def _message_suffix(response: Response) -> str:
    message = message_of(response)
    return f": {message}" if message else ""


def _is_rate_limit(response: Response) -> bool:
    """Return whether this is a rate limit; some providers use 403 or 503 with a header."""
    if response.status_code == 429:
        return True
    asks = "retry-after" in response.headers or is_exhausted(response.headers)
    return response.status_code in (403, 503) and asks


def _wait(response: Response, now: datetime) -> float | None:
    seconds = wait_seconds(response.headers, now=now)
    return wait_in_body(body_of(response)) if seconds is None else seconds


def _message_in(body: Any, depth: int = 0) -> str:
    if isinstance(body, str):
        return " ".join(body.split())
    if depth > 3:
        return ""
    if isinstance(body, list):
        return _message_in(body[0], depth + 1) if body else ""
    if isinstance(body, dict):
        texts = (_message_in(body[key], depth + 1) for key in MESSAGE_KEYS if key in body)
        return next((text for text in texts if text), "")
    return ""
