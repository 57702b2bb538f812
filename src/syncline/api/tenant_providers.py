"""Refuses tenants' keys the providers that they may not connect."""

from collections.abc import Mapping
from uuid import UUID

from syncline.api.auth import Principal
from syncline.api.problems import Problem
from syncline.app import Engine


async def check_providers(
    engine: Engine, principal: Principal, by_field: Mapping[str, str]
) -> None:
    """Refuse providers that this key may not connect; each is given by the field that names it."""
    if principal.is_operator:
        return
    refused = await engine.tenant_providers.refusals(by_field.values())
    errors = [
        {"field": field, "rule": refused[slug]}
        for field, slug in by_field.items()
        if slug in refused
    ]
    if errors:
        raise Problem(403, "provider", errors[0]["rule"], errors=errors)


async def check_provider_of(engine: Engine, principal: Principal, connection_id: UUID) -> None:
    """Refuse to change what a connector is given, where this key may not connect its provider."""
    if principal.is_operator:
        return
    connection = await engine.connections.get(connection_id, tenant_id=principal.tenant_id)
    await check_providers(engine, principal, {"provider_slug": connection.provider_slug})
