"""`syncline connections …`: what gets synced."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from syncline.cli.commands import bulk
from syncline.cli.declared import Force, check_changes, check_new
from syncline.cli.errors import Failure
from syncline.cli.imports import (
    ImportFormat,
    ImportReport,
    Rejections,
    import_entries,
    open_import,
    read_entries,
)
from syncline.cli.interrupts import Interrupts
from syncline.cli.named import ConnectionId, call_for
from syncline.cli.options import (
    After,
    AsJson,
    Config,
    FromStdin,
    Limit,
    OfProvider,
    OfTenant,
    Yes,
    confirm,
    parse_json,
    parse_object,
    read_credentials,
    text_of,
)
from syncline.cli.output import hint_next, print_json, print_table, record, say
from syncline.cli.progress import progress
from syncline.cli.session import perform, session_of
from syncline.cli.views.rows import connection_row, show_connection
from syncline.model import Connection, ConnectionOrder, ConnectionStatus, JobType
from syncline.text import one_line

if TYPE_CHECKING:
    from syncline.app import Engine

ID = "acme/github/octo/hello"

commands = typer.Typer(
    help="Add, show, change and delete connections.",
    no_args_is_help=True,
    epilog="Example: syncline connections list --status needs_reauth",
)


@commands.command(
    epilog="Example: syncline connections add acme git site"
    """ --config '{"url": "."}' --interval 300"""
)
def add(
    context: typer.Context,
    tenant: Annotated[str, typer.Argument(metavar="TENANT", help="The tenant that owns it.")],
    provider: Annotated[
        str, typer.Argument(metavar="PROVIDER", help="A provider that `syncline providers` lists.")
    ],
    external_id: Annotated[
        str, typer.Argument(metavar="EXTERNAL_ID", help="Its name at the provider.")
    ],
    config: Config = None,
    interval: Annotated[
        int | None, typer.Option(metavar="SECONDS", min=60, help="Time between two runs.")
    ] = None,
    credentials_stdin: FromStdin = False,
    sync: Annotated[bool, typer.Option("--sync", help="Sync it now.")] = False,
    force: Force = False,
    json: AsJson = False,
) -> None:
    """Add a connection. The next tick schedules its first run."""
    credentials = read_credentials() if credentials_stdin else None

    async def create(engine: "Engine") -> Connection:
        from syncline.services.connections import NewConnection

        new = NewConnection(tenant, provider, external_id, config, interval, credentials)
        await check_new(engine, new, force=force)
        if provider not in engine.providers:
            say(
                f"syncline: no connector for {one_line(provider)} is installed here; "
                "its jobs wait for a worker that has one"
            )
        added = await engine.connections.add(new)
        if sync:
            await engine.trigger(added.id)
        return added

    show_connection(session_of(context).call(create), json)


@commands.command("import", epilog="Example: syncline connections import accounts.csv")
def import_(
    context: typer.Context,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="CSV, or one JSON object per line; - for stdin.")
    ],
    format: Annotated[
        ImportFormat | None,
        typer.Option(help="Format of the file. Default: csv for *.csv, otherwise ndjson."),
    ] = None,
    rejected: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where to write bad lines. Default: FILE.rejected."),
    ] = None,
    force: Force = False,
    json: AsJson = False,
) -> None:
    """Add connections from a file, and skip those that exist.

    If it is interrupted, run it again. Fields: tenant_id, provider_slug, external_id, and
    optionally config (an object) and interval_seconds.
    """
    is_csv = file.suffix.lower() == ".csv"
    chosen = format or (ImportFormat.CSV if is_csv else ImportFormat.NDJSON)
    bad_lines = rejected or Path(f"{'stdin' if str(file) == '-' else file}.rejected")
    session = session_of(context)
    report = ImportReport()

    async def work(_interrupts: Interrupts) -> None:
        with open_import(file) as (stream, size), Rejections(bad_lines, report) as rejections:
            async with session.engine() as engine:
                with progress("import", size) as advance:
                    entries = read_entries(stream, chosen)
                    await import_entries(engine, entries, rejections, advance, force=force)

    with session.logs():
        perform(work)
    _show_report(report, json)


def _show_report(report: ImportReport, json: bool) -> None:
    if json:
        print_json(asdict(report))
    else:
        print(f"Added {report.added:,} connections; {report.existing:,} existed already.")
    if report.rejected:
        lines = "1 line was" if report.rejected == 1 else f"{report.rejected:,} lines were"
        raise Failure(f"{lines} rejected; see {report.rejected_file}")


@commands.command("list", epilog="Example: syncline connections list --tenant acme --json")
def list_(
    context: typer.Context,
    tenant: OfTenant = None,
    provider: OfProvider = None,
    status: Annotated[
        ConnectionStatus | None, typer.Option(help="Only connections with this status.")
    ] = None,
    prefix: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only external ids that begin with this.")
    ] = None,
    order: Annotated[
        ConnectionOrder, typer.Option(help="Sort by id, by external id, or by the oldest last run.")
    ] = ConnectionOrder.ID,
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
    else:
        print_table(
            ("ID", "Tenant", "Provider", "External id", "Status", "Every", "Next run", "Why"),
            [connection_row(connection) for connection in found],
            dispensable=("Every", "Next run", "Provider", "Why", "Tenant"),
        )
    hint_next(found)


@commands.command(epilog=f"Example: syncline connections show {ID}")
def show(context: typer.Context, connection: ConnectionId, json: AsJson = False) -> None:
    """Show a connection in full."""
    found = call_for(context, connection, lambda engine, id_: engine.connections.get(id_))
    show_connection(found, json)


@commands.command(epilog=f"Example: syncline connections pause {ID} --reason 'moving house'")
def pause(
    context: typer.Context,
    connection: ConnectionId,
    reason: Annotated[
        str | None, typer.Option(help="Why you pause it. Shown with the connection.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Stop scheduling a connection. A running job finishes and its signals are kept."""
    changed = call_for(
        context, connection, lambda engine, id_: engine.connections.pause(id_, reason=reason)
    )
    show_connection(changed, json)


@commands.command(epilog=f"Example: syncline connections resume {ID}")
def resume(context: typer.Context, connection: ConnectionId, json: AsJson = False) -> None:
    """Activate a connection again. It continues from its cursor at the next tick."""
    changed = call_for(context, connection, lambda engine, id_: engine.connections.resume(id_))
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
    default: Annotated[bool, typer.Option("--default", help="Use the default interval.")] = False,
    json: AsJson = False,
) -> None:
    """Change how often a connection runs."""
    if (seconds is None) != default:
        raise typer.BadParameter("give either a number of seconds or --default")
    changed = call_for(
        context, connection, lambda engine, id_: engine.connections.set_interval(id_, seconds)
    )
    show_connection(changed, json)


@commands.command(
    "set-config",
    epilog=f"Example: syncline connections set-config {ID}"
    """ '{"url": "https://git.example/site.git"}'""",
)
def set_config(
    context: typer.Context,
    connection: ConnectionId,
    config: Annotated[
        str, typer.Argument(metavar="JSON|@FILE", help="The whole new config, an object.")
    ],
    force: Force = False,
    json: AsJson = False,
) -> None:
    """Replace a connection's config. The next run uses it."""
    value = parse_object(text_of(config))

    async def change(engine: "Engine", id_: UUID) -> Connection:
        if not force:
            await check_changes(engine, id_, config=value)
        return await engine.connections.set_config(id_, value)

    show_connection(call_for(context, connection, change), json)


@commands.command(
    "set-cursor",
    epilog=f"Example: syncline connections set-cursor {ID}"
    """ '{"since": "2025-01-01T00:00:00Z"}'""",
)
def set_cursor(
    context: typer.Context,
    connection: ConnectionId,
    cursor: Annotated[
        str | None, typer.Argument(metavar="JSON|@FILE", help="Where the next run starts.")
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Start from the beginning.")] = False,
    json: AsJson = False,
) -> None:
    """Change where the next run starts."""
    if (cursor is None) != clear:
        raise typer.BadParameter("give either a cursor in JSON or --clear")
    value = None if cursor is None else parse_json(text_of(cursor))
    changed = call_for(
        context, connection, lambda engine, id_: engine.connections.set_cursor(id_, value)
    )
    show_connection(changed, json)


@commands.command(
    "set-credentials",
    epilog=f"Example: syncline connections set-credentials {ID} --credentials-stdin < token.json",
)
def set_credentials(
    context: typer.Context,
    connection: ConnectionId,
    credentials_stdin: FromStdin = False,
    clear: Annotated[bool, typer.Option("--clear", help="Delete the stored credentials.")] = False,
    force: Force = False,
    json: AsJson = False,
) -> None:
    """Replace a connection's credentials. If it needs_reauth, it becomes active again."""
    if credentials_stdin == clear:
        raise typer.BadParameter("give either --credentials-stdin or --clear")
    credentials = read_credentials() if credentials_stdin else None

    async def change(engine: "Engine", id_: UUID) -> Connection:
        if not force:
            await check_changes(engine, id_, credentials=credentials)
        return await engine.connections.set_credentials(id_, credentials)

    show_connection(call_for(context, connection, change), json)


@commands.command(epilog=f"Example: syncline connections sync {ID} --type full")
def sync(
    context: typer.Context,
    connection: ConnectionId,
    type: Annotated[
        JobType, typer.Option(help="incremental continues from the cursor; full starts over.")
    ] = JobType.INCREMENTAL,
    priority: Annotated[
        int | None, typer.Option(min=-32_767, max=32_767, help="Higher runs first.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Sync now. An idle worker starts the job within a second."""
    job = call_for(
        context,
        connection,
        lambda engine, id_: engine.trigger(id_, job_type=type, priority=priority),
    )
    if json:
        print_json(record(job))
    else:
        print(f"Job {job.id} is {job.status}; see `syncline jobs show {job.id}`.")


@commands.command(epilog=f"Example: syncline connections delete {ID} --yes")
def delete(
    context: typer.Context,
    connection: ConnectionId,
    keep_signals: Annotated[bool, typer.Option("--keep-signals", help="Keep its signals.")] = False,
    yes: Yes = False,
) -> None:
    """Delete a connection with its jobs and signals."""
    kept = "" if keep_signals else " and signals"
    confirm(f"Delete connection {connection}, its jobs{kept}?", yes=yes)
    call_for(
        context,
        connection,
        lambda engine, id_: engine.connections.delete(id_, keep_signals=keep_signals),
    )
    print(f"Deleted connection {connection}.")


commands.add_typer(bulk.commands)
