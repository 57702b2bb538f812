"""What went wrong, as RFC 9457 problem documents that name the field and the rule."""

import json
import logging
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from syncline.errors import (
    Changed,
    Conflict,
    PositionLost,
    SchemaError,
    SettingsError,
    TooSlow,
)
from syncline.store.pool import is_passing
from syncline.text import one_line, shortened

LOG = logging.getLogger("syncline.http")
MEDIA_TYPE = "application/problem+json"
MOST_ERRORS = 100
# How the engine begins to say what is wrong with a value: `interval_seconds is 5; it must be …`.
NAMED_FIELD = re.compile(r"(\w++(?:\[\d++\])?+(?:\.\w++)*+)(?: is| has| holds| lies| belongs|:) ")


class Problem(Exception):
    """An answer that says why there is no other one."""

    def __init__(
        self,
        status: int,
        slug: str,
        detail: str,
        *,
        errors: Sequence[Mapping[str, Any]] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.slug = slug
        self.detail = detail
        self.errors = list(errors)
        self.headers = dict(headers or {})

    def response(self) -> Response:
        body: dict[str, Any] = {
            "type": f"/docs#problem-{self.slug}",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": shortened(one_line(self.detail), 1000),
        }
        if self.errors:
            body["errors"] = self.errors[:MOST_ERRORS]
        text = json.dumps(body, ensure_ascii=False)
        return Response(text, self.status, headers=self.headers, media_type=MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Let everything that a route raises be answered by a problem document."""

    async def answer(_request: Request, error: Exception) -> Response:
        return problem_of(error).response()

    ours = (Problem, TooSlow, SettingsError)
    for kind in (*ours, RequestValidationError, HTTPException, ValueError, LookupError):
        app.add_exception_handler(kind, answer)


def problem_of(error: Exception) -> Problem:
    """Return the problem that an exception stands for."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, RequestValidationError):
        return invalid([_validation_error(found) for found in error.errors()])
    if isinstance(error, HTTPException):
        return Problem(error.status_code, "http", str(error.detail), headers=error.headers)
    return _of_engine(error) or _unforeseen(error)


def invalid(errors: Sequence[Mapping[str, Any]]) -> Problem:
    first = errors[0]
    more = f" ({len(errors) - 1} more)" if len(errors) > 1 else ""
    return Problem(422, "invalid", f"{first['field']}: {first['rule']}{more}", errors=errors)


def _of_engine(error: Exception) -> Problem | None:
    said = str(error.args[0]) if error.args else type(error).__name__
    if isinstance(error, Changed):
        return Problem(412, "changed", said)
    if isinstance(error, PositionLost):
        return Problem(410, "position-lost", said)
    if isinstance(error, Conflict):
        return Problem(409, "conflict", said)
    if type(error) is LookupError:  # its subclasses tell of mistakes in the program
        return Problem(404, "not-found", said)
    if isinstance(error, TooSlow):
        return Problem(503, "too-slow", said)
    if isinstance(error, SettingsError):  # what this server lacks, such as a key for credentials
        return Problem(409, "not-configured", said)
    if type(error) is ValueError:
        named = NAMED_FIELD.match(said)
        return invalid([{"field": named[1] if named else "request", "rule": one_line(said)}])
    return None


def _unforeseen(error: Exception) -> Problem:
    if isinstance(error, SchemaError) or is_passing(error):
        LOG.warning("the database does not answer: %s", one_line(str(error)))
        headers = {"Retry-After": "2"}
        return Problem(503, "unavailable", "the database does not answer now", headers=headers)
    LOG.exception("a request failed", exc_info=error)
    return Problem(500, "internal", "something went wrong here; the log tells what")


def _validation_error(found: Mapping[str, Any]) -> dict[str, Any]:
    where, *path = (str(part) for part in found["loc"])
    name = "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in path).lstrip(".")
    rule = str(found["msg"]).removeprefix("Value error, ")
    return {"field": name or where, "in": where, "rule": shortened(one_line(rule), 300)}
