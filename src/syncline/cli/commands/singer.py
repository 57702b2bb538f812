"""`syncline singer …`: other people's taps, each in an environment of its own."""

from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from syncline.cli.errors import Failure
from syncline.cli.options import AsJson, Config
from syncline.cli.output import print_fields, print_json, print_table
from syncline.cli.session import perform, session_of

if TYPE_CHECKING:
    from syncline.cli.interrupts import Interrupts
    from syncline.connectors.foreign.environments import Installed, Shelf

commands = typer.Typer(
    help="Install Singer taps, each of which is then a provider.",
    no_args_is_help=True,
    epilog="Example: syncline singer add tap-rest-api-msdk",
)

Tap = Annotated[str, typer.Argument(metavar="TAP", help="Its name, as `singer list` shows it.")]


@commands.command(epilog="Example: syncline singer add tap-rest-api-msdk")
def add(
    package: Annotated[
        str, typer.Argument(metavar="PACKAGE", help="What pip installs: a name, a file, a URL.")
    ],
    name: Annotated[
        str | None, typer.Option(help="The provider's name. Default: its script's.")
    ] = None,
    executable: Annotated[
        str | None, typer.Option(help="The script that is the tap, where there are several.")
    ] = None,
) -> None:
    """Install a tap into an environment of its own, and make it a provider."""
    taps = _shelf()
    if any(tap.name == name for tap in taps.all()):
        raise Failure(f"{name} is installed already: `syncline singer upgrade {name}`")
    _tell(taps.add(package, name=name, executable=executable))
    print("Workers that run already do not know it: restart them.")


@commands.command("list", epilog="Example: syncline singer list --json")
def list_(json: AsJson = False) -> None:
    """List the taps that are installed here."""
    taps = _shelf().all()
    if json:
        print_json([_record(tap) for tap in taps])
        return
    print_table(
        ("Provider", "Package", "Version", "Settings it needs"),
        [(tap.name, tap.package, tap.version, ", ".join(_required(tap))) for tap in taps],
    )


@commands.command(epilog="Example: syncline singer show tap-rest-api-msdk")
def show(tap: Tap, json: AsJson = False) -> None:
    """Show a tap's settings, as it describes them itself."""
    found = _shelf().get(tap)
    if json:
        print_json({**_record(found), "about": found.about})
        return
    schema = found.settings_schema or {}
    print_fields({"provider": found.name, "package": found.package, "version": found.version})
    required = _required(found)
    print_table(
        ("Setting", "Type", "Needed", "Means"),
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
    """Check a config against the tap's description, and list the streams that it leads to."""
    from syncline.connectors.foreign.catalog import select, stream_name
    from syncline.connectors.foreign.options import read_options
    from syncline.connectors.foreign.singer import SingerTap
    from syncline.engine.connector_setup import configure_connectors
    from syncline.http.environment import NoTelemetry
    from syncline.model import Connection

    installed = _shelf().get(tap)
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
        str | None, typer.Option(help="Install this instead, such as tap-csv==1.2.")
    ] = None,
) -> None:
    """Install the newest version; workers use it once they are restarted."""
    _tell(_shelf().upgrade(tap, package))
    print("Workers that run already use the version before: restart them.")


@commands.command(epilog="Example: syncline singer remove tap-rest-api-msdk")
def remove(tap: Tap) -> None:
    """Remove a tap and its environment; connections and signals stay."""
    _shelf().remove(tap)
    print(f"{tap} is removed.")


def _shelf() -> "Shelf":
    from syncline.connectors.foreign.environments import Shelf
    from syncline.connectors.foreign.singer import SHELF

    return Shelf(SHELF)


def _tell(tap: "Installed") -> None:
    from syncline.children.sandbox import why_unavailable

    print(f"{tap.name}: {tap.package} {tap.version}")
    needed = ", ".join(_required(tap))
    print(f"It needs the settings: {needed}" if needed else "It needs no settings.")
    reason = why_unavailable()
    if reason is not None:
        print(
            f"This host allows no sandbox ({reason}); it runs where foreign.unsandboxed names it."
        )


def _record(tap: "Installed") -> dict[str, Any]:
    return {
        "provider": tap.name,
        "package": tap.package,
        "version": tap.version,
        "requirement": tap.requirement,
        "executable": tap.executable,
        "required_settings": _required(tap),
    }


def _required(tap: "Installed") -> list[str]:
    schema = tap.settings_schema
    return [str(name) for name in schema.get("required") or ()] if isinstance(schema, dict) else []


def _type(described: dict[str, Any]) -> str:
    told = described.get("type", "")
    return " or ".join(told) if isinstance(told, list) else str(told)
