"""Checks of connections by what their connectors declare, for the commands."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from syncline.cli.errors import Failure
from syncline.errors import Invalid

if TYPE_CHECKING:
    from syncline.app import Engine
    from syncline.services.connections import NewConnection

Force = Annotated[
    bool,
    typer.Option("--force", help="Accept an unknown provider, and what its connector refuses."),
]


async def check_new(engine: "Engine", new: "NewConnection", *, force: bool) -> None:
    """Refuse a connection that breaks a rule of its connector."""
    if not force:
        known = await engine.declarations.known()
        _refuse(known.problems(new.provider_slug, new.config or {}, new.credentials))


async def check_changes(
    engine: "Engine",
    connection_id: UUID,
    *,
    config: dict[str, Any] | None = None,
    credentials: dict[str, Any] | None = None,
) -> None:
    """Refuse a config or credentials that the connection's connector does not take."""
    provider = (await engine.connections.get(connection_id)).provider_slug
    known = await engine.declarations.known()
    if known.declaration(provider) is not None:  # it may have been added with --force
        _refuse(known.problems(provider, config, credentials))


def _refuse(problems: Sequence[Invalid]) -> None:
    if problems:
        raise Failure(f"{'; '.join(map(str, problems))}. --force accepts it anyway")
