"""The program: its global options, its commands, and how a command ends."""

import sys
from collections.abc import Sequence
from enum import StrEnum
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from syncline.cli.commands import (
    audit,
    budgets,
    connections,
    connector,
    db,
    doctor,
    explain,
    history,
    jobs,
    keys,
    migrate,
    providers,
    run,
    secrets,
    signals,
    singer,
    status,
    tenants,
    verify,
    workers,
)
from syncline.cli.errors import report
from syncline.cli.session import Session

WITH_VALUE = ("--database-url", "--schema", "--connectors", "--log-level", "--log-format")
WITHOUT_VALUE = ("--debug",)


class Program(TyperGroup):
    """Accepts the global options anywhere, prints errors in one line, and exits with 0, 1 or 2."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, global_options_first(args))

    def main(  # type: ignore[override]  # it is called in this one way
        self, args: Sequence[str] | None = None, prog_name: str = "syncline", **extra: Any
    ) -> None:
        arguments = list(sys.argv[1:] if args is None else args)
        extra["standalone_mode"] = False
        try:
            code = super().main(arguments, prog_name, **extra)
        except typer.Abort:
            code = 1
        except Exception as error:
            code = report(error, debug="--debug" in arguments)
        sys.exit(code if isinstance(code, int) else 0)


def global_options_first(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with the global options moved before the command."""
    options: list[str] = []
    rest: list[str] = []
    remaining = iter(arguments)
    for argument in remaining:
        if argument == "--":
            return [*options, *rest, argument, *remaining]
        name, has_value, _ = argument.partition("=")
        if argument in WITHOUT_VALUE or (has_value and name in WITH_VALUE):
            options.append(argument)
        elif name in WITH_VALUE:
            options += [argument, *(value for value in [next(remaining, None)] if value)]
        else:
            rest.append(argument)
    return options + rest


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


app = typer.Typer(
    name="syncline",
    cls=Program,
    add_completion=True,
    no_args_is_help=True,
    context_settings={"help_option_names": ["--help", "-h"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog="Example: syncline up --demo",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"syncline {version('syncline')}")
        raise typer.Exit


DatabaseUrl = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Postgres to use. Default: the embedded database."),
]
LogLevelOption = Annotated[
    LogLevel | None,
    typer.Option(
        envvar="SYNCLINE_LOG_LEVEL", show_envvar=False, help="Log to stderr from this level up."
    ),
]
LogFormatOption = Annotated[
    LogFormat,
    typer.Option(
        envvar="SYNCLINE_LOG_FORMAT", show_envvar=False, help="Log as text lines or as JSON."
    ),
]
ShowVersion = Annotated[
    bool,
    typer.Option(
        "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
    ),
]


@app.callback()
def syncline(
    context: typer.Context,
    database_url: DatabaseUrl = None,
    schema: Annotated[
        str | None, typer.Option(metavar="NAME", help="Schema that holds the tables.")
    ] = None,
    connectors: Annotated[
        list[str] | None,
        typer.Option(metavar="MODULE", help="A module with connectors. May be repeated."),
    ] = None,
    log_level: LogLevelOption = None,
    log_format: LogFormatOption = LogFormat.TEXT,
    debug: Annotated[  # noqa: ARG001  (Program.main reads it)
        bool, typer.Option("--debug", help="Show the traceback of an error.")
    ] = False,
    version: ShowVersion = False,  # noqa: ARG001
) -> None:
    """Syncline, the sync engine that lives in your Postgres.

    You may put these options before or after the command. All other settings come from the
    environment (SYNCLINE_…) and from syncline.toml.
    """
    modules = tuple(connectors or ())
    context.obj = Session(database_url, schema, modules, log_level, log_format)


for module in (run, migrate, verify, status, history, doctor, workers, audit):
    app.add_typer(module.commands)
app.add_typer(providers.commands, name="providers")
app.add_typer(connections.commands, name="connections")
app.add_typer(connector.commands, name="connector")
app.add_typer(jobs.commands, name="jobs")
app.add_typer(signals.commands, name="signals")
app.add_typer(singer.commands, name="singer")
app.add_typer(explain.commands)
app.add_typer(tenants.commands, name="tenants")
app.add_typer(budgets.commands, name="budgets")
app.add_typer(keys.commands, name="keys")
app.add_typer(secrets.commands, name="secrets")
app.add_typer(db.commands, name="db")
