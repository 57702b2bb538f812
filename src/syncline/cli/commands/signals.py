"""`syncline signals …`: what connectors brought."""

import typer

from syncline.cli.options import After, AsJson, Limit, OfConnection, OfKind, OfProvider, OfTenant
from syncline.cli.output import print_json, print_table, record, tell_more
from syncline.cli.session import session_of

commands = typer.Typer(
    help="Look at signals.",
    no_args_is_help=True,
    epilog="Example: syncline signals list --tenant acme",
)


@commands.command("list", epilog="Example: syncline signals list --kind ticket_created --json")
def list_(
    context: typer.Context,
    tenant: OfTenant = None,
    provider: OfProvider = None,
    connection: OfConnection = None,
    kind: OfKind = None,
    after: After = None,
    limit: Limit = 50,
    json: AsJson = False,
) -> None:
    """List signals in the order in which they were stored."""
    found = session_of(context).call(
        lambda engine: engine.signals.list(
            tenant_id=tenant,
            provider_slug=provider,
            connection_id=connection,
            kind=kind,
            after=after,
            limit=limit,
        )
    )
    if json:
        print_json([record(signal) for signal in found])
        return
    print_table(
        ("ID", "Tenant", "Provider", "Kind", "Occurred", "Payload"),
        [
            (
                signal.id,
                signal.tenant_id,
                signal.provider_slug,
                signal.kind,
                signal.occurred_at,
                signal.payload,
            )
            for signal in found
        ],
        dispensable=("Provider", "Tenant", "Payload"),
    )
    tell_more(found, limit, "--after")
