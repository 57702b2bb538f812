"""Connections that a command is given by their id or by their name, and names beside ids."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypeVar
from uuid import UUID

import typer

from syncline.cli.session import session_of
from syncline.connection_name import ConnectionName
from syncline.model import Job, StoredSignal

if TYPE_CHECKING:
    from syncline.app import Engine

T = TypeVar("T")
HINT = "`syncline connections list` shows ids and names"


@dataclass(frozen=True, slots=True)
class NamedConnection:
    """What a person gave for a connection."""

    given: UUID | ConnectionName

    @classmethod
    def parse(cls, text: str) -> "NamedConnection":
        try:
            return cls(UUID(text))
        except ValueError:
            name = ConnectionName.parse(text)
        if name is None:
            wrong = f"{text!r} is neither a UUID nor TENANT/PROVIDER/EXTERNAL_ID ({HINT})"
            raise typer.BadParameter(wrong)
        return cls(name)

    def __str__(self) -> str:
        return str(self.given)

    async def id(self, engine: "Engine") -> UUID:
        """Return its id; a name that no connection has raises NotFound."""
        return self.given if isinstance(self.given, UUID) else await engine.names.id_of(self.given)


ConnectionId = Annotated[
    NamedConnection,
    typer.Argument(
        metavar="CONNECTION",
        parser=NamedConnection.parse,
        help="Its id, or TENANT/PROVIDER/EXTERNAL_ID.",
    ),
]
OfConnection = Annotated[
    NamedConnection | None,
    typer.Option(
        "--connection",
        metavar="CONNECTION",
        parser=NamedConnection.parse,
        help="Only of this connection: its id, or TENANT/PROVIDER/EXTERNAL_ID.",
    ),
]


def call_for(
    context: typer.Context,
    connection: NamedConnection,
    act: Callable[["Engine", UUID], Awaitable[T]],
) -> T:
    """Do something with the connection that a command was given."""

    async def work(engine: "Engine") -> T:
        return await act(engine, await connection.id(engine))

    return session_of(context).call(work)


async def id_of(engine: "Engine", connection: NamedConnection | None) -> UUID | None:
    """Return the id of the connection to filter by; None stands for any."""
    return None if connection is None else await connection.id(engine)


async def names_of(
    engine: "Engine", rows: Iterable[Job | StoredSignal]
) -> dict[UUID, ConnectionName]:
    """Return the names of the connections of jobs or signals, by their ids."""
    listed = list(rows)
    external_ids = await engine.stats.names(row.connection_id for row in listed)
    return {
        row.connection_id: ConnectionName(
            row.tenant_id, row.provider_slug, external_ids[row.connection_id]
        )
        for row in listed
        if row.connection_id in external_ids
    }


def named(row: Job | StoredSignal, names: Mapping[UUID, ConnectionName]) -> dict[str, str | None]:
    """Return the name of a row's connection as a field of its JSON."""
    name = names.get(row.connection_id)
    return {"connection": None if name is None else str(name)}
