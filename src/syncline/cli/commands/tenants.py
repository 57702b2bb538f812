"""`syncline tenants …`: export or delete everything of a tenant."""

from typing import TYPE_CHECKING, Annotated

import typer

from syncline.cli.errors import Failure
from syncline.cli.exports import Output, opened
from syncline.cli.interrupts import Interrupts
from syncline.cli.options import Yes, confirm
from syncline.cli.output import say
from syncline.cli.progress import progress
from syncline.cli.session import perform, session_of
from syncline.text import one_line

if TYPE_CHECKING:
    from syncline.model import TenantSize

commands = typer.Typer(
    help="Export or delete everything of a tenant.",
    no_args_is_help=True,
    epilog="Example: syncline tenants export acme --output acme.ndjson",
)

Tenant = Annotated[str, typer.Argument(metavar="TENANT", help="The tenant.")]


@commands.command(epilog="Example: syncline tenants export acme --output acme.ndjson")
def export(context: typer.Context, tenant: Tenant, output: Output = None) -> None:
    """Write a tenant's connections, jobs and signals as NDJSON.

    Each line is {"table": …, "row": …}.
    """
    session = session_of(context)

    async def work(_interrupts: Interrupts) -> "TenantSize":
        async with session.engine() as engine:
            size = await engine.tenants.count(tenant)
            with opened(output) as stream, progress("export", size.rows) as advance:
                async for table, row in engine.tenants.export(tenant):
                    stream.write(f'{{"table": "{table}", "row": {row}}}\n')
                    advance(1)
            return size

    with session.logs():
        size = perform(work)
    say(f"Tenant {one_line(tenant)} has {_counted(size)}.")


@commands.command(epilog="Example: syncline tenants delete acme --yes")
def delete(context: typer.Context, tenant: Tenant, yes: Yes = False) -> None:
    """Revoke a tenant's keys, then delete its connections, jobs and signals in batches.

    If it is interrupted, run it again to delete the rest.
    """
    session = session_of(context)

    async def work(_interrupts: Interrupts) -> "tuple[TenantSize, int]":
        async with session.engine() as engine:
            size = await engine.tenants.count(tenant)
            if not size.rows and not size.keys:
                raise Failure(
                    f"tenant {one_line(tenant)!r} has no connections, jobs, signals or keys"
                )
            confirm(f"Delete tenant {one_line(tenant)} with {_counted(size)}?", yes=yes)
            with progress("delete", size.rows) as advance:
                revoked = await engine.tenants.delete(tenant, on_progress=advance)
            return size, revoked

    with session.logs():
        size, revoked = perform(work)
    keys = "1 key" if revoked == 1 else f"{revoked:,} keys"
    print(f"Deleted tenant {one_line(tenant)} with {_counted(size)}; revoked {keys}.")


def _counted(size: "TenantSize") -> str:
    return f"{size.connections:,} connections, {size.jobs:,} jobs and {size.signals:,} signals"
