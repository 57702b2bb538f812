"""`syncline keys …`: who may use the HTTP API."""

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
    help="Make, list and revoke keys to the HTTP API.",
    no_args_is_help=True,
    epilog="Example: syncline keys list",
)


def _key_id(text: str) -> UUID:
    return parse_uuid(text, "`syncline keys list` shows the ids of keys")


@commands.command(epilog="Example: syncline keys create ann --scope read --expires-in-days 90")
def create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose key it is.")],
    tenant: Annotated[
        str | None,
        typer.Option(metavar="TENANT", help="The one tenant it sees. Default: an operator's, all."),
    ] = None,
    scope: Annotated[
        Scope,
        typer.Option(help="What it may do; each includes the ones before it."),
    ] = Scope.ADMIN,
    expires_in_days: Annotated[
        int | None,
        typer.Option(min=1, max=3650, help="When it ends by itself. Default: api.key_days, 365."),
    ] = None,
    never: Annotated[bool, typer.Option("--never", help="It does not end by itself.")] = False,
    json: AsJson = False,
) -> None:
    """Make a key. It is shown once: only a digest of it is kept.

    From the first key on, every request needs one, also on this machine.
    """
    if never and expires_in_days is not None:
        raise typer.BadParameter("choose one of --never and --expires-in-days")
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
    print_fields(
        {
            "ID": key.id,
            "Name": key.name,
            "Sees": key.tenant_id if key.tenant_id is not None else "everything",
            "Scope": key.scope,
            "Expires": key.expires_at or "never",
        }
    )


@commands.command("list", epilog="Example: syncline keys list --json")
def list_(context: typer.Context, json: AsJson = False) -> None:
    """List keys with their last use, also those that ended; warn of those that end soon."""
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
            say(f"Key {key.id} ({one_line(key.name)}) ends on {cell(key.expires_at)}.")


@commands.command(epilog="Example: syncline keys revoke 01993f8e-5c1e-7d3a-9c55-0f4be16bd1a0")
def revoke(
    context: typer.Context,
    key: Annotated[UUID, typer.Argument(metavar="KEY", parser=_key_id, help="Its id.")],
) -> None:
    """Refuse a key from the next request on, and sign out whoever came in with it."""
    revoked = session_of(context).call(lambda engine: engine.access.revoke_key(key))
    print(f"Revoked key {revoked.id} ({one_line(revoked.name)}).")
