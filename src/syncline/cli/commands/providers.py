"""`syncline providers`: which providers can be synced here."""

from collections.abc import Iterator
from importlib.metadata import entry_points

import typer

from syncline.cli.options import AsJson
from syncline.cli.output import print_json, print_table
from syncline.cli.session import session_of
from syncline.sdk.connector import Connector

commands = typer.Typer()


@commands.command(epilog="Example: syncline providers --connectors my_connectors")
def providers(context: typer.Context, json: AsJson = False) -> None:
    """List the providers that have a connector here."""
    from syncline.sdk.registry import connectors_by_provider

    session = session_of(context)
    given = session.connectors(session.settings())
    found = [
        {
            "provider": provider,
            "connector": f"{type(connector).__module__}.{type(connector).__qualname__}",
            "from": _module(connector) if connector in given else _package(connector),
        }
        for provider, connector in sorted(connectors_by_provider(given).items())
    ]
    if json:
        print_json(found)
    else:
        print_table(("Provider", "Connector", "From"), [tuple(entry.values()) for entry in found])


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
