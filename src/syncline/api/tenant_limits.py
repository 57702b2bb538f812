"""What a tenant's own key may add to: so many connections, so many stored bytes."""

from syncline.api.auth import Principal
from syncline.api.problems import Problem
from syncline.app import Engine
from syncline.engine.upkeep.storage_limit import too_much_stored


def connection_limit(engine: Engine, principal: Principal) -> int | None:
    """Return how many connections there may be after this request; operators decide themselves."""
    return None if principal.is_operator else engine.settings.api.max_connections_per_tenant


async def check_storage(engine: Engine, principal: Principal) -> None:
    """Refuse what would make a tenant store more, while it stores more than it may."""
    limit = engine.settings.api.max_stored_bytes_per_tenant
    if principal.tenant_id is None or limit is None:
        return
    stored = await engine.tenants.stored_bytes(principal.tenant_id)
    if stored > limit:
        why = too_much_stored(principal.tenant_id, stored, limit)
        raise Problem(403, "storage", f"{why}: an operator must remove some or raise the limit")
