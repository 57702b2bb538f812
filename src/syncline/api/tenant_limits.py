"""What a tenant's own key may not do: other providers, too many connections, too much storage.

Operators' keys have none of these limits.
"""

from collections.abc import Mapping
from uuid import UUID

from syncline.api.auth import Principal
from syncline.api.problems import Problem, invalid
from syncline.app import Engine
from syncline.engine.upkeep.storage_limit import too_much_stored
from syncline.services.jobs import TENANTS_HIGHEST_PRIORITY


async def check_providers(
    engine: Engine, principal: Principal, by_field: Mapping[str, str]
) -> None:
    """Refuse providers that this key may not connect. `by_field` maps field names to slugs."""
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
    """Refuse to change a connection whose provider this key may not connect."""
    if principal.is_operator:
        return
    connection = await engine.connections.get(connection_id, tenant_id=principal.tenant_id)
    await check_providers(engine, principal, {"provider_slug": connection.provider_slug})


def connection_limit(engine: Engine, principal: Principal) -> int | None:
    """Return how many connections the tenant may have; None for an operator."""
    return None if principal.is_operator else engine.settings.api.max_connections_per_tenant


async def check_storage(engine: Engine, principal: Principal) -> None:
    """Refuse a request that would store more for a tenant that is over its limit."""
    limit = engine.settings.api.max_stored_bytes_per_tenant
    if principal.tenant_id is None or limit is None:
        return
    stored = await engine.tenants.stored_bytes(principal.tenant_id)
    if stored > limit:
        why = too_much_stored(principal.tenant_id, stored, limit)
        raise Problem(403, "storage", f"{why}: an operator must delete some or raise the limit")


def check_priority(principal: Principal, priority: int | None) -> None:
    """Refuse a priority above what tenants may use, so that operators' jobs come first."""
    if not principal.is_operator and priority is not None and priority > TENANTS_HIGHEST_PRIORITY:
        rule = f"a tenant's key may use at most {TENANTS_HIGHEST_PRIORITY}"
        raise invalid([{"field": "priority", "rule": rule}])
