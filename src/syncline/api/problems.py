"""Errors as RFC 9457 problem documents that name the field and the rule."""

import json
import logging
import re
import traceback
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from http import HTTPStatus
from typing import Any
from uuid import UUID

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from opentelemetry import trace
from starlette.exceptions import HTTPException

from syncline.clock import new_id
from syncline.errors import (
    Changed,
    Conflict,
    Invalid,
    NotFound,
    PositionLost,
    Refused,
    SchemaError,
    SettingsError,
    TooSlow,
)
from syncline.redaction import mask_secrets
from syncline.services.availability import is_unavailable
from syncline.telemetry.log import TRACEBACK
from syncline.text import one_line, shortened

LOG = logging.getLogger("syncline.http")
MEDIA_TYPE = "application/problem+json"
MOST_ERRORS = 100
# The library's arguments whose query parameter has another name.
QUERY_NAMES = {
    "after": "page",
    "connection_id": "connection",
    "external_id_prefix": "prefix",
    "job_type": "type",
    "max_duration": "max_duration_seconds",
    "min_duration": "min_duration_seconds",
    "provider_slug": "provider",
    "tenant_id": "tenant",
}


TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
NO_TRACE = "0" * 32
_TRACE_ID: ContextVar[str | None] = ContextVar("trace_id", default=None)


def begin_trace(traceparent: str) -> None:
    """Give the request that begins a trace id: the client's own, the span's, or a new one."""
    given = TRACEPARENT.fullmatch(traceparent)
    span = trace.get_current_span().get_span_context()
    if given is not None and given[1] != NO_TRACE:
        _TRACE_ID.set(given[1])
    else:
        _TRACE_ID.set(trace.format_trace_id(span.trace_id) if span.is_valid else None)


def trace_id() -> str:
    """Return the trace id of the request, which its problem and the log have in common."""
    found = _TRACE_ID.get()
    if found is None:
        found = new_id().hex
        _TRACE_ID.set(found)
    return found


class Problem(Exception):
    """The answer to a request that was refused or failed."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        errors: Sequence[Mapping[str, Any]] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.errors = list(errors)
        self.existing_id: UUID | None = None
        self.headers = dict(headers or {})

    def response(self) -> Response:
        body: dict[str, Any] = {
            "type": f"/docs#problem-{self.code}",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "code": self.code,
            "detail": shortened(one_line(self.detail), 1000),
            "trace_id": trace_id(),
        }
        if self.errors:
            body["errors"] = self.errors[:MOST_ERRORS]
        if self.existing_id is not None:
            body["existing_id"] = str(self.existing_id)
        text = json.dumps(body, ensure_ascii=False)
        return Response(text, self.status, headers=self.headers, media_type=MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Answer what a route refuses with a problem document.

    Any other exception is a bug: it reaches the middleware, which logs it and answers 500.
    """

    async def answer(request: Request, error: Exception) -> Response:
        if request.method == "GET" and isinstance(error, Invalid):
            error = Invalid(QUERY_NAMES.get(error.field, error.field), error.reason)
        return problem_of(error).response()

    for kind in (Problem, Refused, TooSlow, SettingsError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, answer)


def problem_of(error: Exception) -> Problem:
    """Return the problem that an exception stands for."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, RequestValidationError):
        return invalid([_validation_error(found) for found in error.errors()])
    if isinstance(error, HTTPException):
        return Problem(error.status_code, "http", str(error.detail), headers=error.headers)
    return _of_engine(error) or _unexpected(error)


def invalid(errors: Sequence[Mapping[str, Any]]) -> Problem:
    first = errors[0]
    more = f" ({len(errors) - 1} more)" if len(errors) > 1 else ""
    return Problem(422, "invalid", f"{first['field']}: {first['rule']}{more}", errors=errors)


def _of_engine(error: Exception) -> Problem | None:
    match error:
        case Invalid():
            errors = [{"field": error.field, "rule": one_line(error.reason)}]
            return Problem(422, "invalid", str(error), errors=errors)
        case NotFound():
            return Problem(404, "not-found", str(error))
        case Changed():
            return Problem(412, "changed", str(error))
        case PositionLost():
            return Problem(410, "position-lost", str(error))
        case Conflict():
            problem = Problem(409, "conflict", str(error))
            problem.existing_id = error.existing_id
            return problem
        case TooSlow():
            return Problem(503, "too-slow", str(error))
        case SettingsError():  # this server lacks something, such as a key for credentials
            return Problem(409, "not-configured", str(error))
    return None


def _unexpected(error: Exception) -> Problem:
    if isinstance(error, SchemaError) or is_unavailable(error):
        why = one_line(str(error))
        LOG.warning("the database does not answer: %s", why, extra={"trace_id": trace_id()})
        headers = {"Retry-After": "2"}
        return Problem(503, "unavailable", "the database does not answer now", headers=headers)
    text = mask_secrets("".join(traceback.format_exception(error))).rstrip()
    # Handlers that show fields show the trace below the line; others have it in the text.
    fields = {"event": "a request failed", "trace_id": trace_id(), TRACEBACK: text}
    LOG.error("a request failed trace_id=%s\n%s", trace_id(), text, extra=fields)
    return Problem(500, "internal", "something went wrong; the log has details by trace_id")


def _validation_error(found: Mapping[str, Any]) -> dict[str, Any]:
    where, *path = (str(part) for part in found["loc"])
    if where == "query":  # a repeated parameter has one name
        path = path[:1]
    name = "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in path).lstrip(".")
    rule = str(found["msg"]).removeprefix("Value error, ")
    return {"field": name or where, "in": where, "rule": shortened(one_line(rule), 300)}
