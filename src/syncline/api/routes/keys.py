"""`/v1/keys`: the keys to the API. For operators."""

from datetime import timedelta
from uuid import UUID

from fastapi import APIRouter, Request

from syncline.api.auth import OperatorCanAdminister, ScopedRoute, engine_of
from syncline.api.requests import NewKeyBody
from syncline.api.responses import KeyOut, KeysOut, NewKeyOut, problems

router = APIRouter(prefix="/v1/keys", tags=["keys"], route_class=ScopedRoute)


@router.get("", responses=problems())
async def list_keys(request: Request, principal: OperatorCanAdminister) -> KeysOut:  # noqa: ARG001
    """List all keys with their last use, including expired and revoked ones."""
    found = await engine_of(request).access.list_keys()
    return KeysOut(items=[KeyOut.of(key) for key in found])


@router.post("", status_code=201, responses=problems(413, 415))
async def create_key(
    request: Request,
    principal: OperatorCanAdminister,  # noqa: ARG001
    body: NewKeyBody,
) -> NewKeyOut:
    """Create a key. Only this answer contains it.

    There is no `Idempotency-Key` here: to answer twice, the server would have to store the key.
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
    """Revoke a key from the next request on, and end its sessions."""
    return KeyOut.of(await engine_of(request).access.revoke_key(key_id))
