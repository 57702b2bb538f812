"""`syncline workers`: the processes that run here."""

import typer

from syncline.cli.options import AsJson
from syncline.cli.output import print_json, print_table, record
from syncline.cli.session import session_of

commands = typer.Typer()


@commands.command(epilog="Example: syncline workers --json")
def workers(context: typer.Context, json: AsJson = False) -> None:
    """List the running workers, and those that died within a day."""
    found = session_of(context).call(lambda engine: engine.workers.list())
    if json:
        print_json([record(worker) for worker in found])
        return
    print_table(
        (
            *("Host", "Process", "Status", "Roles", "Busy", "Slots", "Providers"),
            *("Version", "Started", "Last heartbeat", "ID"),
        ),
        [
            (
                worker.host,
                worker.pid,
                worker.status,
                " ".join(worker.roles),
                worker.busy,
                worker.slots,
                " ".join(worker.providers),
                worker.version,
                worker.started_at,
                worker.beat_at,
                worker.id,
            )
            for worker in found
        ],
        dispensable=("ID", "Version", "Started", "Providers", "Roles", "Slots"),
    )
