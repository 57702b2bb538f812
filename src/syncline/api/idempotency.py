"""Requests with an `Idempotency-Key`: a repetition gets the first answer and changes nothing."""

import hashlib
import json
from collections.abc import Awaitable, Callable
from typing import TypeVar

from fastapi import Request, Response
from pydantic import BaseModel

from syncline.api.auth import Principal
from syncline.api.problems import Problem
from syncline.api.responses import etag
from syncline.errors import Invalid
from syncline.model import IdempotentRequest
from syncline.services.base import Once, Repeated

T = TypeVar("T")
REPLAYED = "Idempotency-Replayed"


async def answer_once(
    request: Request,
    key: str | None,
    make: Callable[[Once[T] | None], Awaitable[T]],
    shape: Callable[[T], BaseModel],
    *,
    status: int,
) -> Response:
    """Make the change and return the answer; return the stored answer to a repetition."""

    def render(result: T) -> str:
        return shape(result).model_dump_json()

    once = Once(_identity(request, key, await request.body()), render) if key is not None else None
    try:
        text = render(await make(once))
    except Repeated as repeated:
        if not repeated.is_same:
            rule = "Idempotency-Key was used for another request; choose a new one"
            errors = [{"field": "Idempotency-Key", "rule": rule}]
            raise Problem(422, "key-reused", rule, errors=errors) from None
        return _respond(repeated.answer, status, {REPLAYED: "true"})
    return _respond(text, status, {})


def _identity(request: Request, key: str, body: bytes) -> IdempotentRequest:
    if "\0" in key:
        raise Invalid("Idempotency-Key", "contains NUL")
    principal: Principal = request.state.principal
    scope = str(principal.key_id) if principal.key_id is not None else "local"
    target = f"{request.method} {request.url.path}\n".encode()
    digest = hashlib.sha256(target + body).digest()
    return IdempotentRequest(scope, key, digest, principal.tenant_id)


def _respond(text: str, status: int, headers: dict[str, str]) -> Response:
    body = json.loads(text)
    if "version" in body:
        headers["ETag"] = etag(body["version"])
    if status == 201:
        headers["Location"] = f"/v1/connections/{body['id']}"
    return Response(text, status, headers=headers, media_type="application/json")
