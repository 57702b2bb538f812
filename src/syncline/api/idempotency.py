"""What routes share: problem documents in the schema, versions, and requests made once."""

import hashlib
import json
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

from fastapi import Header, Request, Response
from pydantic import BaseModel

from syncline.api.auth import Person
from syncline.api.problems import MEDIA_TYPE, Problem
from syncline.api.responses import ProblemOut
from syncline.app import Engine
from syncline.services.validation import Once, Repeated
from syncline.store.data import idempotency

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
    person: Person = request.state.person
    return engine.for_request(person.tenant_id)


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
    person: Person,
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
        once = Once(_identity(request, person, key, await request.body()), render)
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


def _identity(request: Request, person: Person, key: str, body: bytes) -> idempotency.Request:
    if "\0" in key:
        raise ValueError("Idempotency-Key holds NUL")
    scope = str(person.key_id) if person.key_id is not None else "local"
    target = f"{request.method} {request.url.path}\n".encode()
    digest = hashlib.sha256(target + body).digest()
    return idempotency.Request(scope, key, digest, person.tenant_id)
