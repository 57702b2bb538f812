"""`syncline providers …`: which providers can be synced here, and which may be called now."""

from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import Annotated

import typer

from syncline.cli.caps import MaxRunning, Uncapped, chosen_cap
from syncline.cli.options import AsJson
from syncline.cli.output import cell, print_fields, print_json, print_table, record, say
from syncline.cli.session import session_of
from syncline.policy.gates import Gate
from syncline.sdk.connector import Connector
from syncline.text import one_line

commands = typer.Typer(
    help="List providers; pause, resume and cap them.",
    invoke_without_command=True,
    epilog="Example: syncline providers pause github --because 'maintenance until 14:00'",
)
Slug = Annotated[str, typer.Argument(metavar="PROVIDER", help="Its slug, such as github.")]


@commands.callback()
def providers(context: typer.Context, json: AsJson = False) -> None:
    """List the providers that have a connector here, and pause or resume one."""
    if context.invoked_subcommand is None:
        _list(context, json=json)


@commands.command("list", epilog="Example: syncline providers list --connectors my_connectors")
def list_(context: typer.Context, json: AsJson = False) -> None:
    """List the providers that have a connector here."""
    _list(context, json=json)


@commands.command(epilog="Example: syncline providers show github")
def show(context: typer.Context, provider: Slug, json: AsJson = False) -> None:
    """Show what a provider takes, and whether its jobs may start or why not."""
    session = session_of(context)
    known = session.call(lambda engine: engine.declarations.known())
    declared = known.declaration(provider)
    shown_fields = {} if declared is None else record(declared)
    found = session.call(lambda engine: engine.gates.list())
    gate = next((one for one in found if one.provider_slug == provider), Gate(provider))
    uses = session.call(lambda engine: engine.shares.caps(provider_slug=provider))
    caps = [use.as_json() for use in uses if use.cap.provider_slug == provider]
    budgets = [
        budget
        for budget in session.call(lambda engine: engine.budgets.list())
        if budget.is_in_force and budget.calls is not None and provider in budget.providers
    ]
    if json:
        found_budgets = [record(budget) for budget in budgets]
        print_json({**shown_fields, **record(gate), "budgets": found_budgets, "caps": caps})
        return
    shown = ", ".join(_cap(**cap) for cap in caps) or "no cap"
    print_fields({"State": _state(gate), "Runs at most": shown, **record(gate), **shown_fields})
    for budget in budgets:
        since = "" if budget.used is None else f" ({budget.used} used)"
        until = f"; there is room from {budget.room_at}" if budget.room_at else ""
        per = f"{budget.per_seconds:g} s"
        say(f"The budget {budget.scope} allows {budget.calls} calls in {per}{since}{until}.")


@commands.command(epilog="Example: syncline providers pause github --because 'maintenance'")
def pause(
    context: typer.Context,
    provider: Slug,
    because: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Why, for those who wonder.")
    ] = None,
) -> None:
    """Start no job of a provider until it is resumed. Running jobs end as usual."""
    session_of(context).call(lambda engine: engine.gates.pause(provider, because=because))
    say(f"{provider} is paused. `syncline providers resume {provider}` undoes it.")


@commands.command("set", epilog="Example: syncline providers set github --max-running 50")
def set_(
    context: typer.Context,
    provider: Slug,
    max_running: MaxRunning = None,
    uncapped: Uncapped = False,
) -> None:
    """Set how many jobs of a provider run at once, of all tenants together."""
    changes_cap, cap = chosen_cap(max_running, uncapped)
    if not changes_cap:
        raise typer.BadParameter("name --max-running or --uncapped")
    session_of(context).call(lambda engine: engine.shares.set_cap(cap, provider_slug=provider))
    say(f"Set for {provider}. Every worker knows it within a second.")


@commands.command(epilog="Example: syncline providers resume github")
def resume(context: typer.Context, provider: Slug) -> None:
    """Let jobs of a provider start again, whatever kept them from it."""
    had_gate = session_of(context).call(lambda engine: engine.gates.resume(provider))
    say(f"{provider} may be called again." if had_gate else f"{provider} was not shut.")


def _list(context: typer.Context, *, json: bool) -> None:
    from syncline.sdk.registry import connectors_by_provider

    session = session_of(context)
    settings = session.settings()
    given = session.connectors(settings)
    # Without a database that is configured there is nobody to ask.
    asked = settings.database_url is not None
    gates = session.call(lambda engine: engine.gates.list()) if asked else []
    states = {gate.provider_slug: _state(gate) for gate in gates}
    found = [
        {
            "provider": provider,
            "state": states.get(provider, "usual") if asked else None,
            "connector": f"{type(connector).__module__}.{type(connector).__qualname__}",
            "from": _module(connector) if connector in given else _package(connector),
        }
        for provider, connector in sorted(connectors_by_provider(given).items())
    ]
    if json:
        print_json(found)
    else:
        columns = ("Provider", "State", "Connector", "From")
        print_table(columns, [tuple(map(cell, entry.values())) for entry in found])


def _cap(tenant_id: str | None, max_running: int, running: int, **_: object) -> str:
    whose = f"{max_running:,}" if tenant_id is None else f"{max_running:,} of {one_line(tenant_id)}"
    return f"{whose} ({running:,} running)"


def _state(gate: Gate) -> str:
    if gate.paused_at is not None:
        return "paused"
    if gate.opened_at is not None:
        return "down"
    return "limited" if gate.closed_until is not None else "usual"


def _module(connector: Connector) -> str:
    return f"module {type(connector).__module__}"


def _package(connector: Connector) -> str:
    """Return the installed package that registers the connector."""
    from syncline.sdk.registry import GROUP

    kind = type(connector)
    packages: Iterator[str] = (
        f"{entry.dist.name} {entry.dist.version}"
        for entry in entry_points(group=GROUP)
        if entry.dist is not None
        and entry.attr == kind.__qualname__
        # A package may register a class that one of its submodules defines.
        and f"{kind.__module__}.".startswith(f"{entry.module}.")
    )
    return next(packages, "an installed package")
