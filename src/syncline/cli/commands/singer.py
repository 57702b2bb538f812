"""`syncline singer …`: Singer taps, each in its own environment."""

from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from syncline.cli.errors import Failure
from syncline.cli.options import AsJson, Config
from syncline.cli.output import print_fields, print_json, print_table
from syncline.cli.session import perform, session_of

if TYPE_CHECKING:
    from syncline.cli.interrupts import Interrupts
    from syncline.connectors.foreign.environments import InstalledProgram, InstalledPrograms

commands = typer.Typer(
    help="Install Singer taps. Each one becomes a provider.",
    no_args_is_help=True,
    epilog="Example: syncline singer add tap-rest-api-msdk",
)

Tap = Annotated[str, typer.Argument(metavar="TAP", help="A tap that `syncline singer list` shows.")]


@commands.command(epilog="Example: syncline singer add tap-rest-api-msdk")
def add(
    package: Annotated[
        str, typer.Argument(metavar="PACKAGE", help="What pip installs: a name, a file or a URL.")
    ],
    name: Annotated[
        str | None, typer.Option(help="Name of the provider. Default: the name of its script.")
    ] = None,
    executable: Annotated[
        str | None, typer.Option(help="The tap's script, if the package has several.")
    ] = None,
) -> None:
    """Install a tap in its own environment, as a provider."""
    taps = _installed_taps()
    if any(tap.name == name for tap in taps.all()):
        raise Failure(
            f"{name} is installed already; upgrade it with `syncline singer upgrade {name}`"
        )
    _show_installed(taps.add(package, name=name, executable=executable))
    print("Restart running workers, so that they know it.")


@commands.command("list", epilog="Example: syncline singer list --json")
def list_(json: AsJson = False) -> None:
    """List the installed taps."""
    taps = _installed_taps().all()
    if json:
        print_json([_record(tap) for tap in taps])
        return
    print_table(
        ("Provider", "Package", "Version", "Required settings"),
        [(tap.name, tap.package, tap.version, ", ".join(_required(tap))) for tap in taps],
    )


@commands.command(epilog="Example: syncline singer show tap-rest-api-msdk")
def show(tap: Tap, json: AsJson = False) -> None:
    """Show a tap's settings, as the tap describes them."""
    found = _installed_taps().get(tap)
    if json:
        print_json({**_record(found), "about": found.about})
        return
    schema = found.settings_schema or {}
    print_fields({"provider": found.name, "package": found.package, "version": found.version})
    required = _required(found)
    print_table(
        ("Setting", "Type", "Required", "Description"),
        [
            (name, _type(one), "yes" if name in required else "", one.get("description", ""))
            for name, one in (schema.get("properties") or {}).items()
            if isinstance(one, dict)
        ],
    )


@commands.command(
    epilog='Example: syncline singer streams tap-github --config \'{"settings": {"org": "acme"}}\''
)
def streams(
    context: typer.Context,
    tap: Tap,
    config: Config = None,
    json: AsJson = False,
) -> None:
    """Check a config against the tap's schema, and list the streams it selects."""
    from syncline.connectors.foreign.catalog import select, stream_name
    from syncline.connectors.foreign.options import read_options
    from syncline.connectors.foreign.singer import SingerTap
    from syncline.engine.connector_setup import configure_connectors
    from syncline.http.environment import NoTelemetry
    from syncline.model import Connection

    installed = _installed_taps().get(tap)
    connector = SingerTap(installed)
    configure_connectors({tap: connector}, session_of(context).settings(), NoTelemetry())
    connection = Connection(
        UUID(int=0), "trial", tap, "trial", status="active", config=config or {}, metadata={}
    )

    async def discover(_interrupts: "Interrupts") -> dict[str, Any]:
        return await connector.discover(connection)

    with session_of(context).logs():
        options = read_options(connection, installed.settings_schema)
        chosen = select(perform(discover), options)["streams"]
    if json:
        print_json(chosen)
        return
    print_table(
        ("Stream", "Selected", "Keys"),
        [
            (stream_name(one), "yes" if one["selected"] else "", one.get("key_properties"))
            for one in chosen
        ],
    )


@commands.command(epilog="Example: syncline singer upgrade tap-rest-api-msdk")
def upgrade(
    tap: Tap,
    package: Annotated[
        str | None, typer.Option(help="Install this instead, for example tap-csv==1.2.")
    ] = None,
) -> None:
    """Install the newest version. Workers use it after a restart."""
    _show_installed(_installed_taps().upgrade(tap, package))
    print("Restart running workers, so that they use it.")


@commands.command(epilog="Example: syncline singer remove tap-rest-api-msdk")
def remove(tap: Tap) -> None:
    """Remove a tap and its environment. Connections and signals stay."""
    _installed_taps().remove(tap)
    print(f"Removed {tap}.")


def _installed_taps() -> "InstalledPrograms":
    from syncline.connectors.foreign.environments import InstalledPrograms
    from syncline.connectors.foreign.singer import SINGER

    return InstalledPrograms(SINGER)


def _show_installed(tap: "InstalledProgram") -> None:
    from syncline.children.sandbox import why_unavailable

    print(f"{tap.name}: {tap.package} {tap.version}")
    needed = ", ".join(_required(tap))
    print(f"Required settings: {needed}" if needed else "It has no required settings.")
    reason = why_unavailable()
    if reason is not None:
        print(
            f"This host allows no sandbox ({reason}). To run the tap without one, add it to "
            "foreign.unsandboxed."
        )


def _record(tap: "InstalledProgram") -> dict[str, Any]:
    return {
        "provider": tap.name,
        "package": tap.package,
        "version": tap.version,
        "requirement": tap.requirement,
        "executable": tap.executable,
        "required_settings": _required(tap),
    }


def _required(tap: "InstalledProgram") -> list[str]:
    schema = tap.settings_schema
    return [str(name) for name in schema.get("required") or ()] if isinstance(schema, dict) else []


def _type(described: dict[str, Any]) -> str:
    types = described.get("type", "")
    return " or ".join(types) if isinstance(types, list) else str(types)
