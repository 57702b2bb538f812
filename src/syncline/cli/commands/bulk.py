"""`syncline connections act`: change all connections that a filter matches."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from syncline.cli.options import AsJson, OfProvider, OfTenant, Yes, confirm
from syncline.cli.output import print_json
from syncline.cli.progress import progress
from syncline.cli.session import Session, perform, session_of
from syncline.model import ConnectionFilter, ConnectionStatus
from syncline.policy.bulk import VERBS, BulkVerb, Target

if TYPE_CHECKING:
    from syncline.services.bulk import BulkRequest

NAMES = {verb.replace("_", "-"): verb for verb in VERBS[Target.CONNECTIONS]}

commands = typer.Typer()


@commands.command(epilog="Example: syncline connections act pause --provider github --dry-run")
def act(
    context: typer.Context,
    action: Annotated[str, typer.Argument(metavar="ACTION", help=f"One of {', '.join(NAMES)}.")],
    tenant: OfTenant = None,
    provider: OfProvider = None,
    status: Annotated[
        ConnectionStatus | None, typer.Option(help="Only those in this status.")
    ] = None,
    every_one: Annotated[bool, typer.Option("--all", help="Choose all, without a filter.")] = False,
    interval: Annotated[
        int | None, typer.Option(help="For set-interval: seconds; without it, the default.")
    ] = None,
    reason: Annotated[str | None, typer.Option(help="For pause: why.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count them.")] = False,
    yes: Yes = False,
    json: AsJson = False,
) -> None:
    """Pause, resume, sync or set the interval of all connections that match.

    They are changed in batches. If this process dies, a worker goes on with the rest.
    """
    from syncline.services.bulk import BulkRequest

    if action not in NAMES:
        raise typer.BadParameter(f"ACTION is one of {', '.join(NAMES)}")
    if every_one == any((tenant, provider, status)):
        raise typer.BadParameter("name --tenant, --provider or --status; or --all alone")
    wanted = ConnectionFilter(tenant, provider, status)
    request = BulkRequest(NAMES[action], wanted, interval, reason)
    session = session_of(context)
    with session.logs():
        found = perform(lambda _: _carry_out(session, request, dry_run=dry_run, yes=yes))
    if json:
        print_json(found)
        return
    print(f"{found['matched']:,} match; {found['done']:,} done, {found['refused']:,} left alone.")
    for why, count in found["refusals"].items():
        print(f"  {count:,}: {why}")


async def _carry_out(
    session: Session, request: "BulkRequest", *, dry_run: bool, yes: bool
) -> dict[str, Any]:
    async with session.engine() as engine:
        count = (await engine.bulk.preview(request)).count
        if dry_run or not count:
            return {"id": None, "matched": count, "done": 0, "refused": 0, "refusals": {}}
        verb = BulkVerb(request.action).replace("_", "-")
        confirm(f"{verb} {count:,} connections?", yes=yes)
        begun = await engine.bulk.start(request, expected=count)
        with progress(verb, count) as advance:
            ended = await engine.bulk.run(begun.id, on_progress=advance)
        return {
            "id": str(ended.id),
            "state": ended.state,
            "matched": ended.expected,
            "done": ended.done,
            "refused": ended.refused,
            "refusals": dict(ended.refusals),
            "refused_first": ended.refused_first,
        }
