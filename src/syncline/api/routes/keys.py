"""`/v1/keys`: who may use the API. For operators."""

from datetime import timedelta
from uuid import UUID

from fastapi import APIRouter, Request

from syncline.api.auth import OperatorCanAdminister, ScopedRoute
from syncline.api.idempotency import engine_of, problems
from syncline.api.requests import NewKeyBody
from syncline.api.responses import KeyOut, KeysOut, NewKeyOut

router = APIRouter(prefix="/v1/keys", tags=["keys"], route_class=ScopedRoute)


@router.get("", responses=problems())
async def list_keys(request: Request, principal: OperatorCanAdminister) -> KeysOut:  # noqa: ARG001
    """Return every key with its last use, also those that no longer open anything."""
    found = await engine_of(request).access.list_keys()
    return KeysOut(items=[KeyOut.of(key) for key in found])


@router.post("", status_code=201, responses=problems(413, 415))
async def create_key(
    request: Request,
    principal: OperatorCanAdminister,  # noqa: ARG001
    body: NewKeyBody,
) -> NewKeyOut:
    """Make a key. This answer is the only one that ever holds it.

    It takes no `Idempotency-Key`: to answer twice, the key would have to be stored.
    """
    key, secret = await engine_of(request).access.create_key(
        body.name,
        tenant_id=body.tenant_id,
        scope=body.scope,
        expires_in=timedelta(days=body.expires_in_days) if body.expires_in_days else None,
        never_expires=body.never_expires,
    )
    return NewKeyOut(**KeyOut.of(key).model_dump(), key=secret)


@router.delete("/{key_id}", responses=problems(404))
async def revoke_key(
    request: Request,
    principal: OperatorCanAdminister,  # noqa: ARG001
    key_id: UUID,
) -> KeyOut:
    """Refuse a key from the next request on, and sign out whoever came in with it."""
    return KeyOut.of(await engine_of(request).access.revoke_key(key_id))
