"""Checks of new and changed connections by what their connectors declare."""

from collections.abc import Mapping
from typing import Annotated, Any
from uuid import UUID

from fastapi import Query

from syncline.api.auth import Principal
from syncline.api.problems import invalid
from syncline.app import Engine
from syncline.errors import Invalid
from syncline.offload import in_thread
from syncline.services.connections import NewConnection

FEW = 50  # more are checked in a thread, so that other requests do not wait
FORCE_HINT = "force=true accepts it anyway"
Force = Annotated[
    bool, Query(description="Accept an unknown provider, and what its connector refuses.")
]


async def check_new_connections(
    engine: Engine, by_place: Mapping[str, NewConnection], *, force: bool
) -> None:
    """Refuse connections that break a rule of their connector; keys are prefixes of fields."""
    if force:
        return
    known = await engine.declarations.known()

    def find() -> dict[str, Invalid]:
        return {
            f"{place}{problem.field}": problem
            for place, new in by_place.items()
            for problem in known.problems(new.provider_slug, new.config or {}, new.credentials)
        }

    _refuse(await in_thread(find) if len(by_place) > FEW else find())


async def check_changes(
    engine: Engine,
    principal: Principal,
    connection_id: UUID,
    *,
    config: dict[str, Any] | None = None,
    credentials: dict[str, Any] | None = None,
) -> None:
    """Refuse a config or credentials that the connection's connector does not take."""
    found = await engine.connections.get(connection_id, tenant_id=principal.tenant_id)
    known = await engine.declarations.known()
    if known.declaration(found.provider_slug) is not None:  # it may have been added with force
        problems = known.problems(found.provider_slug, config, credentials)
        _refuse({problem.field: problem for problem in problems})


def _refuse(problems: Mapping[str, Invalid]) -> None:
    if problems:
        raise invalid(
            [
                {"field": field, "rule": f"{problem.reason}; {FORCE_HINT}"}
                for field, problem in problems.items()
            ]
        )
