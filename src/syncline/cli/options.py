"""Arguments and options that several commands share, and how their values are read."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import typer

from syncline.cli.errors import Failure


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
    """Return the argument, or the content of the file that `@FILE` names."""
    if not argument.startswith("@"):
        return argument
    try:
        return Path(argument[1:]).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise typer.BadParameter(f"cannot read {argument[1:]}: {reason}") from None


def _config(argument: str) -> Any:
    return parse_object(text_of(argument))


def read_credentials() -> Any:
    """Return the JSON object on stdin. Errors never quote it, since it holds secrets."""
    try:
        value = json.loads(sys.stdin.read(), parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise typer.BadParameter("stdin must hold the credentials as one JSON object")
    return value


def refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not valid JSON")


def confirm(question: str, *, yes: bool) -> None:
    """Ask for confirmation unless `yes`; without a terminal, refuse as wrong use."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise typer.BadParameter("stdin is not a terminal, so nobody can confirm; add --yes")
    if not typer.confirm(question):
        raise Failure("nothing was changed")


JobId = Annotated[UUID, typer.Argument(metavar="JOB", parser=_job_id, help="The job's id.")]
SomeJob = Annotated[
    UUID | None, typer.Argument(metavar="[JOB]", parser=_job_id, help="The id of a single job.")
]
Config = Annotated[
    dict[str, Any] | None,
    typer.Option(metavar="JSON|@FILE", parser=_config, help="Its settings. Put no secrets in it."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
FromStdin = Annotated[
    bool,
    typer.Option("--credentials-stdin", help="Read the credentials from stdin, as a JSON object."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Limit = Annotated[int, typer.Option(min=1, max=10_000, help="Maximum number to list.")]
After = Annotated[
    str | None,
    typer.Option(metavar="TOKEN", help="Continue a listing: the token that it printed at its end."),
]
AfterInJobs = Annotated[
    str | None,
    typer.Option(
        "--after",
        "--before",  # its name before 0.2
        metavar="TOKEN",
        help="Continue a listing: the token that it printed at its end.",
    ),
]
OfTenant = Annotated[
    str | None, typer.Option("--tenant", metavar="TENANT", help="Only of this tenant.")
]
OfProvider = Annotated[
    str | None, typer.Option("--provider", metavar="PROVIDER", help="Only of this provider.")
]
OfJob = Annotated[
    UUID | None,
    typer.Option("--job", metavar="JOB", parser=_job_id, help="Only what this job stored."),
]
OfKind = Annotated[str | None, typer.Option("--kind", metavar="KIND", help="Only of this kind.")]
