"""`syncline audit`: who changed what, and when."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from syncline.cli.named import OfConnection, id_of
from syncline.cli.options import After, AsJson, Limit, OfProvider, OfTenant
from syncline.cli.output import hint_next, plain, print_json, print_table, record
from syncline.cli.session import session_of
from syncline.policy.audit import Action, AuditRecord, change_text

if TYPE_CHECKING:
    from syncline.app import Engine
    from syncline.services.pagination import Listing

commands = typer.Typer()
COLUMNS = ("When", "Who", "Action", "Tenant", "About", "Change")
Age = Annotated[
    str,
    typer.Option(metavar="TIME", help="Only from then on: a time (UTC), or an age such as 24h."),
]
OfActor = Annotated[
    str | None,
    typer.Option("--actor", metavar="NAME", help="Only what this key, user or program did."),
]


@commands.command(epilog="Example: syncline audit --tenant acme --since 24h")
def audit(
    context: typer.Context,
    tenant: OfTenant = None,
    provider: OfProvider = None,
    connection: OfConnection = None,
    actor: OfActor = None,
    action: Annotated[Action | None, typer.Option(help="Only this kind of action.")] = None,
    since: Age = "",
    after: After = None,
    limit: Limit = 50,
    json: AsJson = False,
) -> None:
    """List who changed what, newest first: by key, on a page, by command or by the application."""

    async def read(engine: "Engine") -> "Listing[AuditRecord]":
        return await engine.audit.list(
            tenant_id=tenant,
            provider_slug=provider,
            connection_id=await id_of(engine, connection),
            actor=actor,
            action=action,
            since=_time(since, await engine.now()),
            after=after,
            limit=limit,
        )

    found = session_of(context).call(read)
    if json:
        print_json([record(one) for one in found])
    else:
        print_table(COLUMNS, [_row(one) for one in found])
    hint_next(found)


def _time(text: str, now: datetime) -> datetime | None:
    from syncline.api.dashboard.filters import read_time

    return read_time("--since", text, now)


def _row(one: AuditRecord) -> tuple[Any, ...]:
    often = f", {one.count:,} times" if one.count > 1 else ""
    about = one.subject or (
        f"{len(one.connection_ids):,} connections" if one.connection_ids else ""
    )
    where = f" ({one.address})" if one.address else ""
    change = change_text(one.before, one.after)
    return plain(one.acted_at), one.actor + where, one.action + often, one.tenant_id, about, change
