"""`syncline migrate`: bring the schema up to date."""

from typing import TYPE_CHECKING

import typer

from syncline.cli.options import AsJson
from syncline.cli.output import print_json
from syncline.cli.session import session_of

if TYPE_CHECKING:
    from syncline.app import Engine
    from syncline.model import ApiRole, SchemaVersions

commands = typer.Typer()


@commands.command(epilog="Example: syncline migrate --database-url postgresql://owner@db/app")
def migrate(context: typer.Context, json: AsJson = False) -> None:
    """Migrate the schema to this version. May need the owner of the tables.

    It also creates the role that enforces row-level security for API requests. If this session
    may not create it, the command prints the statements for an administrator.
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
            f"The schema is at version {versions.applied}. This Syncline knows version "
            f"{versions.known}, and can work with the newer one."
        )
    elif not applied:
        print("The schema is up to date.")
    _show_statements(role)


async def _migrate(engine: "Engine") -> "tuple[list[str], SchemaVersions, ApiRole]":
    return await engine.migrate(), await engine.schema_versions(), await engine.api_role()


def _show_statements(role: "ApiRole") -> None:
    if not role.statements:
        return
    print(f"API requests run without row-level security until the role {role.name} exists.")
    print("Ask an administrator of the database to run:")
    for statement in role.statements:
        print(f"{statement};")
