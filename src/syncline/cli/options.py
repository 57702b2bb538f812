"""Arguments and options that several commands share."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import typer


def _connection_id(text: str) -> UUID:
    return parse_uuid(text, "`syncline connections list` shows the ids of connections")


def _job_id(text: str) -> UUID:
    return parse_uuid(text, "`syncline jobs list` shows the ids of jobs")


def parse_uuid(text: str, hint: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a UUID ({hint})") from None


def parse_json(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f"not JSON: {error}") from None


def parse_object(text: str) -> Any:
    value = parse_json(text)
    if not isinstance(value, dict):
        raise typer.BadParameter('expected a JSON object, such as {"url": "https://…"}')
    return value


def text_of(argument: str) -> str:
    """Return what was given, or what the file holds that `@` names."""
    if not argument.startswith("@"):
        return argument
    try:
        return Path(argument[1:]).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{argument[1:]} cannot be read: {error}") from None


def _config(argument: str) -> Any:
    return parse_object(text_of(argument))


def read_credentials() -> Any:
    """Return the JSON object on stdin; what is wrong with it is said without a word of it."""
    try:
        value = json.loads(sys.stdin.read(), parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise typer.BadParameter("stdin must hold the credentials as one JSON object")
    return value


def refuse_constant(name: str) -> None:
    raise ValueError(f"{name} has no place in JSON")


ConnectionId = Annotated[
    UUID, typer.Argument(metavar="CONNECTION", parser=_connection_id, help="Its id.")
]
JobId = Annotated[UUID, typer.Argument(metavar="JOB", parser=_job_id, help="Its id.")]
SomeJob = Annotated[
    UUID | None, typer.Argument(metavar="[JOB]", parser=_job_id, help="The id of one.")
]
Config = Annotated[
    dict[str, Any] | None,
    typer.Option(metavar="JSON|@FILE", parser=_config, help="The connection's config, no secrets."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
FromStdin = Annotated[
    bool,
    typer.Option("--credentials-stdin", help="Read the credentials, a JSON object, from stdin."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Limit = Annotated[int, typer.Option(min=1, max=10_000, help="How many to show at most.")]
After = Annotated[
    UUID | None,
    typer.Option(metavar="ID", help="Go on after this one, the last of the page before."),
]
Before = Annotated[
    UUID | None,
    typer.Option(metavar="ID", help="Go on before this one, the last of the page before."),
]
OfTenant = Annotated[
    str | None, typer.Option("--tenant", metavar="TENANT", help="Only this tenant's.")
]
OfProvider = Annotated[
    str | None, typer.Option("--provider", metavar="PROVIDER", help="Only this provider's.")
]
OfConnection = Annotated[
    UUID | None,
    typer.Option(
        "--connection", metavar="ID", parser=_connection_id, help="Only this connection's."
    ),
]
OfKind = Annotated[str | None, typer.Option("--kind", metavar="KIND", help="Only of this kind.")]
