"""What routes share: problem documents in the schema, versions, and requests made once."""

import hashlib
import json
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

from fastapi import Header, Request, Response
from pydantic import BaseModel

from syncline.api.auth import Principal
from syncline.api.problems import MEDIA_TYPE, Problem
from syncline.api.responses import ProblemOut
from syncline.app import Engine
from syncline.errors import Invalid
from syncline.model import IdempotentRequest
from syncline.services.base import Once, Repeated

T = TypeVar("T")
REPLAYED = "Idempotency-Replayed"


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the refusals of a route, for the OpenAPI document."""
    schema = {"schema": {"$ref": "#/components/schemas/ProblemOut"}}
    return {
        status: {"description": "Refused", "content": {MEDIA_TYPE: schema}, "model": ProblemOut}
        for status in (400, 401, 403, 422, 429, 503, *statuses)
    }


def engine_of(request: Request) -> Engine:
    """Return the engine for whoever asks: the database too shows it their tenant's rows alone."""
    engine: Engine = request.app.state.engine
    principal: Principal = request.state.principal
    return engine.for_request(principal.tenant_id)


IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        description="Repeated within a day with the same key, the request does nothing more.",
    ),
]
IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        max_length=100,
        description="The `ETag` that was read before: if it has changed since, nothing is done.",
    ),
]


def etag(version: str) -> str:
    return f'"{version}"'


def expected_version(if_match: str | None) -> str | None:
    """Return the version that a header asks for; any, where there is none."""
    if if_match is None or if_match.strip() == "*":
        return None
    return if_match.strip().removeprefix("W/").strip('"')


async def answer_once(
    request: Request,
    principal: Principal,
    key: str | None,
    shape: Callable[[T], BaseModel],
    make: Callable[[Once[T] | None], Awaitable[T]],
    *,
    status: int,
) -> Response:
    """Return the answer to a request; one that was made before gets the answer that it got."""

    def render(result: T) -> str:
        return shape(result).model_dump_json()

    once = None
    if key is not None:
        once = Once(_identity(request, principal, key, await request.body()), render)
    try:
        text = render(await make(once))
    except Repeated as repeated:
        if not repeated.is_same:
            rule = "Idempotency-Key was used for another request; choose a new one"
            errors = [{"field": "Idempotency-Key", "rule": rule}]
            raise Problem(422, "key-reused", rule, errors=errors) from None
        return _respond(repeated.answer, status, {REPLAYED: "true"})
    return _respond(text, status, {})


def _respond(text: str, status: int, headers: dict[str, str]) -> Response:
    body = json.loads(text)
    if "version" in body:
        headers["ETag"] = etag(body["version"])
    if status == 201:
        headers["Location"] = f"/v1/connections/{body['id']}"
    return Response(text, status, headers=headers, media_type="application/json")


def _identity(request: Request, principal: Principal, key: str, body: bytes) -> IdempotentRequest:
    if "\0" in key:
        raise Invalid("Idempotency-Key", "holds NUL")
    scope = str(principal.key_id) if principal.key_id is not None else "local"
    target = f"{request.method} {request.url.path}\n".encode()
    digest = hashlib.sha256(target + body).digest()
    return IdempotentRequest(scope, key, digest, principal.tenant_id)
