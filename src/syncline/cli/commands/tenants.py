"""`syncline tenants …`: pause, export or delete a tenant; its weight and its caps."""

from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from syncline.cli.caps import MaxRunning, Uncapped, chosen_cap
from syncline.cli.errors import Failure
from syncline.cli.exports import Output, opened
from syncline.cli.interrupts import Interrupts
from syncline.cli.options import AsJson, Yes, confirm
from syncline.cli.output import cell, print_json, print_table, say
from syncline.cli.progress import progress
from syncline.cli.session import perform, session_of
from syncline.text import one_line

if TYPE_CHECKING:
    from syncline.app import Engine
    from syncline.model import TenantSize

commands = typer.Typer(
    help="Pause, export or delete a tenant; set its weight and its caps.",
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


@commands.command("set", epilog="Example: syncline tenants set acme --weight 3 --max-running 20")
def set_(
    context: typer.Context,
    tenant: Tenant,
    weight: Annotated[
        float | None, typer.Option(help="Its share as a multiple of the usual one; 1 is usual.")
    ] = None,
    max_running: MaxRunning = None,
    uncapped: Uncapped = False,
    provider: Annotated[
        str | None,
        typer.Option(metavar="SLUG", help="Set the cap for its jobs at this provider only."),
    ] = None,
) -> None:
    """Set a tenant's weight, and how many of its jobs run at once.

    A weight counts while more is due than there are slots. What runs already goes on.
    """
    changes_cap, cap = chosen_cap(max_running, uncapped)
    if weight is None and not changes_cap:
        raise typer.BadParameter("name --weight, --max-running or --uncapped")
    if provider is not None and not changes_cap:
        raise typer.BadParameter("--provider goes with --max-running or --uncapped")

    async def change(engine: "Engine") -> None:
        if weight is not None:
            await engine.shares.set_weight(tenant, weight)
        if changes_cap:
            await engine.shares.set_cap(cap, tenant_id=tenant, provider_slug=provider)

    session_of(context).call(change)
    say(f"Set for tenant {one_line(tenant)}. Every worker knows it within a second.")


@commands.command(epilog="Example: syncline tenants pause acme --because 'until they have paid'")
def pause(
    context: typer.Context,
    tenant: Tenant,
    because: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Why, for those who wonder.")
    ] = None,
) -> None:
    """Start no job of a tenant until it is resumed. Running jobs end as usual."""
    session_of(context).call(
        lambda engine: engine.connections.pause(tenant_id=tenant, reason=because)
    )
    shown = one_line(tenant)
    say(f"Tenant {shown} is paused. `syncline tenants resume {quote(shown)}` undoes it.")


@commands.command(epilog="Example: syncline tenants resume acme")
def resume(context: typer.Context, tenant: Tenant) -> None:
    """Let a tenant's jobs start again; the next tick plans one run of each that is due."""
    was_paused = session_of(context).call(lambda engine: engine.gates.resume_tenant(tenant))
    state = "is resumed" if was_paused else "was not paused"
    say(f"Tenant {one_line(tenant)} {state}.")


@commands.command("list", epilog="Example: syncline tenants list --json")
def list_(context: typer.Context, json: AsJson = False) -> None:
    """List tenants with a weight, a cap or a pause, and those over their share now."""
    found = session_of(context).call(lambda engine: engine.shares.tenants())
    if json:
        print_json([one.as_json() for one in found])
        return
    rows = [
        (
            one.tenant_id,
            one.weight,
            one.shown_caps,
            one.flood.due if one.flood else None,
            one.pause and one.pause.paused_at,
        )
        for one in found
    ]
    columns = ("Tenant", "Weight", "Runs at most", "Over its share, with due", "Paused since")
    print_table(columns, [tuple(map(cell, row)) for row in rows])


def _counted(size: "TenantSize") -> str:
    return f"{size.connections:,} connections, {size.jobs:,} jobs and {size.signals:,} signals"
