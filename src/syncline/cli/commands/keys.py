"""`syncline keys …`: the keys to the HTTP API."""

from datetime import timedelta
from typing import Annotated
from uuid import UUID

import typer

from syncline.cli.options import AsJson, parse_uuid
from syncline.cli.output import cell, print_fields, print_json, print_table, record, say
from syncline.cli.session import session_of
from syncline.model import KeyStatus, Scope
from syncline.text import one_line

commands = typer.Typer(
    help="Create, list and revoke keys to the HTTP API.",
    no_args_is_help=True,
    epilog="Example: syncline keys list",
)


def _key_id(text: str) -> UUID:
    return parse_uuid(text, "`syncline keys list` shows the ids of keys")


@commands.command(epilog="Example: syncline keys create ann --scope read --expires-in-days 90")
def create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who uses the key.")],
    tenant: Annotated[
        str | None,
        typer.Option(metavar="TENANT", help="The only tenant it may see. Default: all tenants."),
    ] = None,
    scope: Annotated[
        Scope,
        typer.Option(help="What it may do. Each scope includes the ones before it."),
    ] = Scope.ADMIN,
    expires_in_days: Annotated[
        int | None,
        typer.Option(min=1, max=3650, help="Days until it expires. Default: api.key_days, 365."),
    ] = None,
    never: Annotated[bool, typer.Option("--never", help="It never expires.")] = False,
    json: AsJson = False,
) -> None:
    """Create a key. It is shown only once, because only a digest is stored.

    Once a key exists, every request needs one, even on this machine.
    """
    if never and expires_in_days is not None:
        raise typer.BadParameter("give either --never or --expires-in-days, not both")
    expires_in = timedelta(days=expires_in_days) if expires_in_days is not None else None
    key, secret = session_of(context).call(
        lambda engine: engine.access.create_key(
            name, tenant_id=tenant, scope=scope, expires_in=expires_in, never_expires=never
        )
    )
    if json:
        print_json({**record(key), "key": secret})
        return
    print(secret)
    sees = key.tenant_id if key.tenant_id is not None else "everything"
    expires = key.expires_at or "never"
    print_fields(
        {"ID": key.id, "Name": key.name, "Sees": sees, "Scope": key.scope, "Expires": expires}
    )


@commands.command("list", epilog="Example: syncline keys list --json")
def list_(context: typer.Context, json: AsJson = False) -> None:
    """List all keys with their last use, and warn of those that expire soon."""
    found = session_of(context).call(lambda engine: engine.access.list_keys())
    if json:
        print_json([record(key) for key in found])
        return
    print_table(
        ("ID", "Name", "Sees", "Scope", "Status", "Last used", "Expires", "Begins with", "Created"),
        [
            (
                key.id,
                key.name,
                key.tenant_id if key.tenant_id is not None else "everything",
                key.scope,
                key.status,
                key.last_used_at or "never",
                key.expires_at or "never",
                key.begins_with,
                key.created_at,
            )
            for key in found
        ],
        dispensable=("Created", "Begins with"),
    )
    for key in found:
        if key.status == KeyStatus.EXPIRING:
            say(f"Key {key.id} ({one_line(key.name)}) expires on {cell(key.expires_at)}.")


@commands.command(epilog="Example: syncline keys revoke 01993f8e-5c1e-7d3a-9c55-0f4be16bd1a0")
def revoke(
    context: typer.Context,
    key: Annotated[UUID, typer.Argument(metavar="KEY", parser=_key_id, help="The key's id.")],
) -> None:
    """Revoke a key from the next request on, and end its browser sessions."""
    revoked = session_of(context).call(lambda engine: engine.access.revoke_key(key))
    print(f"Revoked key {revoked.id} ({one_line(revoked.name)}).")
