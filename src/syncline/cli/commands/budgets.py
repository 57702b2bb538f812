"""`syncline budgets …`: how many calls may be made, by all processes together."""

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from syncline.cli.options import AsJson
from syncline.cli.output import cell, print_json, print_table, record, say
from syncline.cli.session import session_of
from syncline.text import span

if TYPE_CHECKING:
    from syncline.services.budgets import BudgetState

commands = typer.Typer(
    help="List, set and clear budgets: how many calls may be made.",
    no_args_is_help=True,
    epilog="Example: syncline budgets set google --calls 10000 --per 1h",
)
Scope = Annotated[
    str, typer.Argument(metavar="SCOPE", help="Its name, such as google or google:{tenant}.")
]


@commands.command("list", epilog="Example: syncline budgets list --json")
def list_(context: typer.Context, json: AsJson = False) -> None:
    """List the budgets: how many calls, of which providers, who said so, and what is left."""
    found = session_of(context).call(lambda engine: engine.budgets.list())
    if json:
        print_json([record(one) for one in found])
        return
    columns = ("Scope", "Calls", "Per", "Burst", "Providers", "From", "In force", "Used", "Room")
    print_table(columns, [tuple(map(cell, _row(one))) for one in found])


@commands.command("set", epilog="Example: syncline budgets set google --calls 10000 --per 1h")
def set_(
    context: typer.Context,
    scope: Scope,
    calls: Annotated[
        str, typer.Option(metavar="NUMBER", help="Most calls in any such span, or unlimited.")
    ],
    per: Annotated[str, typer.Option(metavar="SPAN", help="1h, 15m, 60s or seconds.")] = "1h",
    burst: Annotated[
        int | None,
        typer.Option(metavar="NUMBER", help="Most calls at once. Default: 1 % of the calls."),
    ] = None,
    provider: Annotated[
        list[str] | None,
        typer.Option(metavar="SLUG", help="Whose calls count; may be repeated. Default: SCOPE."),
    ] = None,
) -> None:
    """Set a budget. Every process obeys it within five seconds, without a restart.

    It counts instead of one for the same scope in syncline.toml, or of a connector's own limits.
    With {tenant} or {connection} in its name, each tenant or connection has its own.
    """
    if calls != "unlimited" and not calls.isdecimal():
        raise typer.BadParameter(f"--calls must be a number or unlimited, not {calls!r}")
    number = "unlimited" if calls == "unlimited" else int(calls)
    budget = session_of(context).call(
        lambda engine: engine.budgets.set(
            scope,
            calls=number,  # type: ignore[arg-type]  # it is the literal
            per=per,
            burst=burst,
            providers=tuple(provider or ()),
        )
    )
    counted = f"Calls of {', '.join(budget.providers)} count."
    if budget.calls is None:
        say(f"{scope} has no limit.")
    else:
        say(f"{scope} may make {budget.calls} calls in any {_span(budget)}. {counted}")


@commands.command(epilog="Example: syncline budgets clear google")
def clear(context: typer.Context, scope: Scope) -> None:
    """Remove a budget that was set by command or API, or else one of syncline.toml.

    One of syncline.toml comes back when a process starts with it.
    """
    removed = session_of(context).call(lambda engine: engine.budgets.clear(scope))
    if not removed:
        say(f"{scope} had no budget that can be removed. `syncline budgets list` shows them.")
        return
    say(f"The budget of {scope} is removed (it came from: {', '.join(removed)}).")


def _row(one: "BudgetState") -> tuple[object, ...]:
    room = "" if one.room is None else f"{one.room:.0f}"
    if one.room_at is not None:
        room = f"from {one.room_at:%H:%M:%S}Z"
    return (
        one.scope,
        "unlimited" if one.calls is None else one.calls,
        "" if one.calls is None else _span(one),
        one.burst,
        ", ".join(one.providers),
        one.source,
        "yes" if one.is_in_force else "no",
        one.used,
        room,
    )


def _span(one: "BudgetState") -> str:
    return span(timedelta(seconds=one.per_seconds))
