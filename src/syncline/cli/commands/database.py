"""`syncline migrate`, `providers` and `db …`: what stands behind the engine."""

from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

import typer

from syncline.cli.errors import Failure
from syncline.cli.options import AsJson
from syncline.cli.output import print_json, print_table
from syncline.cli.session import perform, session_of
from syncline.sdk.connector import Connector

if TYPE_CHECKING:
    from syncline.app import Engine
    from syncline.model import ApiRole
    from syncline.store.migrate import SchemaVersions

commands = typer.Typer()
embedded = typer.Typer(
    help="Look after the embedded database.",
    no_args_is_help=True,
    epilog="Example: syncline db stop",
)


@commands.command(epilog="Example: syncline migrate --database-url postgresql://owner@db/app")
def migrate(context: typer.Context, json: AsJson = False) -> None:
    """Bring the schema up to this version. May need the tables' owner.

    Also makes the role that requests take on, so that row-level security holds for them. What this
    session may not do for it is printed, for an administrator to run.
    """
    applied, versions, role = session_of(context).call(_migrate)
    if json:
        print_json(
            {
                "applied": applied,
                "version": versions.applied,
                "known_version": versions.known,
                "api_role": role.name,
                "statements": role.statements,
            }
        )
        return
    for name in applied:
        print(f"Applied {name}.")
    if versions.applied > versions.known:
        print(
            f"The schema is at version {versions.applied}, newer than this Syncline, which knows "
            f"{versions.known} and can work on it."
        )
    elif not applied:
        print("The schema is up to date.")
    if role.statements:
        print(f"Requests run without row-level security until role {role.name} is ready.")
        print("Let an administrator of the database run:")
        for statement in role.statements:
            print(f"{statement};")


async def _migrate(engine: "Engine") -> "tuple[list[str], SchemaVersions, ApiRole]":
    return await engine.migrate(), await engine.schema_versions(), await engine.api_role()


@commands.command(epilog="Example: syncline providers --connectors my_connectors")
def providers(context: typer.Context, json: AsJson = False) -> None:
    """List the providers that can be synced here."""
    from syncline.sdk.registry import connectors_by_provider

    session = session_of(context)
    given = session.connectors(session.settings())
    found = [
        {
            "provider": provider,
            "connector": f"{type(connector).__module__}.{type(connector).__qualname__}",
            "from": _module(connector) if connector in given else _package(connector),
        }
        for provider, connector in sorted(connectors_by_provider(given).items())
    ]
    if json:
        print_json(found)
    else:
        print_table(("Provider", "Connector", "From"), [tuple(entry.values()) for entry in found])


def _module(connector: Connector) -> str:
    return f"module {type(connector).__module__}"


def _package(connector: Connector) -> str:
    """Return the installed package that announces a connector."""
    from syncline.sdk.registry import GROUP

    kind = type(connector)
    packages: Iterator[str] = (
        f"{entry.dist.name} {entry.dist.version}"
        for entry in entry_points(group=GROUP)
        if entry.dist is not None
        and entry.attr == kind.__qualname__
        # A package may announce a class that one of its modules defines.
        and f"{kind.__module__}.".startswith(f"{entry.module}.")
    )
    return next(packages, "an installed package")


@embedded.command(epilog='Example: psql "$(syncline db url)"')
def url() -> None:
    """Print its URL, and keep it running until `syncline db stop`."""
    from syncline.store.embedded import keep_running

    print(perform(lambda _: keep_running()))


@embedded.command(epilog="Example: syncline db stop")
def stop() -> None:
    """Stop it, unless something still uses it."""
    from syncline.store import embedded as server

    if not perform(lambda _: server.stop()):
        raise Failure("others still use the embedded database: it stops when the last one leaves")
    print("The embedded database is stopped.")


@embedded.command(epilog="Example: syncline db upgrade")
def upgrade() -> None:
    """Move it to the newest Postgres found. The old data is kept."""
    from syncline.store import embedded as server

    print(perform(lambda _: server.upgrade()))
