"""`syncline connections …`: what gets synced."""

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from syncline.cli.errors import Failure
from syncline.cli.options import (
    After,
    AsJson,
    Config,
    ConnectionId,
    FromStdin,
    Limit,
    OfProvider,
    OfTenant,
    parse_json,
    read_credentials,
    text_of,
)
from syncline.cli.output import print_json, print_table, record, say, tell_more
from syncline.cli.session import session_of
from syncline.cli.views.rows import connection_row, show_connection
from syncline.model import Connection, ConnectionStatus, JobType
from syncline.text import one_line

if TYPE_CHECKING:
    from syncline.app import Engine

ID = "01993f8e-5c1e-7d3a-9c55-0f4be16bd1a0"

commands = typer.Typer(
    help="Add, look at, change and remove connections.",
    no_args_is_help=True,
    epilog="Example: syncline connections list --status needs_reauth",
)


@commands.command(
    epilog="Example: syncline connections add acme git site"
    """ --config '{"url": "."}' --interval 300"""
)
def add(
    context: typer.Context,
    tenant: Annotated[str, typer.Argument(metavar="TENANT", help="Whose data it is.")],
    provider: Annotated[
        str, typer.Argument(metavar="PROVIDER", help="As `syncline providers` lists them.")
    ],
    external_id: Annotated[
        str, typer.Argument(metavar="EXTERNAL_ID", help="Its name at the provider.")
    ],
    config: Config = None,
    interval: Annotated[
        int | None, typer.Option(metavar="SECONDS", min=60, help="Time between two runs.")
    ] = None,
    credentials_stdin: FromStdin = False,
    json: AsJson = False,
) -> None:
    """Add a connection. The next tick schedules its first run."""
    credentials = read_credentials() if credentials_stdin else None

    async def create(engine: "Engine") -> Connection:
        if provider not in engine.providers:
            note = "no connector for it is known here, so its jobs wait for a worker that has one"
            say(f"syncline: {one_line(provider)}: {note}")
        return await engine.connections.create(
            tenant_id=tenant,
            provider_slug=provider,
            external_id=external_id,
            config=config,
            interval_seconds=interval,
            credentials=credentials,
        )

    show_connection(session_of(context).call(create), json)


class ListOrder(StrEnum):
    ID = "id"
    EXTERNAL_ID = "external_id"
    STALENESS = "staleness"


@commands.command("list", epilog="Example: syncline connections list --tenant acme --json")
def list_(
    context: typer.Context,
    tenant: OfTenant = None,
    provider: OfProvider = None,
    status: Annotated[ConnectionStatus | None, typer.Option(help="Only in this status.")] = None,
    prefix: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only whose external id begins so.")
    ] = None,
    order: Annotated[
        ListOrder, typer.Option(help="By id, by external id, or the longest unsynced first.")
    ] = ListOrder.ID,
    after: After = None,
    limit: Limit = 50,
    json: AsJson = False,
) -> None:
    """List connections."""
    found = session_of(context).call(
        lambda engine: engine.connections.list(
            tenant_id=tenant,
            provider_slug=provider,
            status=status,
            external_id_prefix=prefix,
            order=order,
            after=after,
            limit=limit,
        )
    )
    if json:
        print_json([record(connection) for connection in found])
        return
    print_table(
        ("ID", "Tenant", "Provider", "External id", "Status", "Every", "Next run", "Why"),
        [connection_row(connection) for connection in found],
        dispensable=("Every", "Next run", "Provider", "Why", "Tenant"),
    )
    tell_more(found, limit, "--after")


@commands.command(epilog=f"Example: syncline connections show {ID}")
def show(context: typer.Context, connection: ConnectionId, json: AsJson = False) -> None:
    """Show everything about a connection."""
    found = session_of(context).call(lambda engine: engine.connections.get(connection))
    show_connection(found, json)


@commands.command(epilog=f"Example: syncline connections pause {ID} --reason 'moving house'")
def pause(
    context: typer.Context,
    connection: ConnectionId,
    reason: Annotated[str | None, typer.Option(help="Why; shown with the connection.")] = None,
    json: AsJson = False,
) -> None:
    """Stop scheduling a connection. A run in progress keeps what it brings."""
    changed = session_of(context).call(
        lambda engine: engine.connections.pause(connection, reason=reason)
    )
    show_connection(changed, json)


@commands.command(epilog=f"Example: syncline connections resume {ID}")
def resume(context: typer.Context, connection: ConnectionId, json: AsJson = False) -> None:
    """Make a connection active again. It goes on from its cursor, at the next tick."""
    changed = session_of(context).call(lambda engine: engine.connections.resume(connection))
    show_connection(changed, json)


@commands.command(
    "set-interval",
    epilog=f"Example: syncline connections set-interval {ID} 300",
)
def set_interval(
    context: typer.Context,
    connection: ConnectionId,
    seconds: Annotated[
        int | None, typer.Argument(metavar="SECONDS", min=60, help="The new interval.")
    ] = None,
    default: Annotated[bool, typer.Option("--default", help="Go back to the default.")] = False,
    json: AsJson = False,
) -> None:
    """Change how often a connection runs."""
    if (seconds is None) != default:
        raise typer.BadParameter("give either a number of seconds or --default")
    changed = session_of(context).call(
        lambda engine: engine.connections.set_interval(connection, seconds)
    )
    show_connection(changed, json)


@commands.command(
    "set-cursor",
    epilog=f"Example: syncline connections set-cursor {ID}"
    """ '{"since": "2025-01-01T00:00:00Z"}'""",
)
def set_cursor(
    context: typer.Context,
    connection: ConnectionId,
    cursor: Annotated[
        str | None, typer.Argument(metavar="JSON|@FILE", help="Where the next run starts from.")
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Start from nothing.")] = False,
    json: AsJson = False,
) -> None:
    """Change where the next run starts from."""
    if (cursor is None) != clear:
        raise typer.BadParameter("give either a cursor in JSON or --clear")
    value = None if cursor is None else parse_json(text_of(cursor))
    changed = session_of(context).call(
        lambda engine: engine.connections.set_cursor(connection, value)
    )
    show_connection(changed, json)


@commands.command(epilog=f"Example: syncline connections sync {ID} --type full")
def sync(
    context: typer.Context,
    connection: ConnectionId,
    type: Annotated[
        JobType, typer.Option(help="From the cursor, or from nothing.")
    ] = JobType.INCREMENTAL,
    priority: Annotated[
        int | None, typer.Option(min=-32_767, max=32_767, help="Higher runs first.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Trigger a sync now. An idle worker starts the job within a second."""
    job = session_of(context).call(
        lambda engine: engine.trigger(connection, job_type=type, priority=priority)
    )
    if json:
        print_json(record(job))
    else:
        print(f"Job {job.id} is {job.status}; see `syncline jobs show {job.id}`.")


@commands.command(epilog=f"Example: syncline connections delete {ID} --yes")
def delete(
    context: typer.Context,
    connection: ConnectionId,
    keep_signals: Annotated[
        bool, typer.Option("--keep-signals", help="Leave what it brought.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove a connection with its jobs and its signals."""
    if not yes:
        _ask(f"Delete connection {connection}, its jobs{'' if keep_signals else ' and signals'}?")
    session_of(context).call(
        lambda engine: engine.connections.delete(connection, keep_signals=keep_signals)
    )
    print(f"Deleted connection {connection}.")


def _ask(question: str) -> None:
    if not sys.stdin.isatty():
        raise typer.BadParameter("there is nobody to ask: add --yes to delete")
    if not typer.confirm(question):
        raise Failure("nothing was deleted")
