"""`syncline connector …`: for those who write one: make it, try it, check it."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from syncline.cli.errors import Failure
from syncline.cli.options import AsJson, Config, parse_json, parse_object, text_of
from syncline.cli.output import print_json, print_table, say
from syncline.cli.session import load_connector, perform, session_of

if TYPE_CHECKING:
    from syncline.testing.checks import Subject

commands = typer.Typer(
    help="Write a connector: make, try and check it.",
    no_args_is_help=True,
    epilog="Example: syncline connector new tickets",
)


Name = Annotated[
    str, typer.Argument(metavar="MODULE:CLASS", help="Installed, or in the current folder.")
]
CredentialsFromStdin = Annotated[
    bool, typer.Option("--credentials-stdin", help="Read credentials, a JSON object, from stdin.")
]


@commands.command(epilog="Example: syncline connector new tickets")
def new(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The provider: small letters, digits, hyphens.")
    ],
    folder: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Where to; by default a new folder of that name."),
    ] = None,
) -> None:
    """Write a package with a connector that works and tests that pass. Overwrites nothing."""
    from syncline.cli.skeleton import write_package

    target = folder or Path(name)
    for path in write_package(name, target):
        print(f"Wrote {target / path}.")
    print(f"Next: cd {target} && pip install -e . && pytest")


@commands.command(
    epilog="Example: syncline connector run syncline_tickets:Tickets"
    """ --config '{"url": "http://127.0.0.1:8000"}' --record calls.json"""
)
def run(
    context: typer.Context,
    connector: Name,
    config: Config = None,
    cursor: Annotated[
        str | None, typer.Option(metavar="JSON|@FILE", help="Where to start. Default: nothing.")
    ] = None,
    pages: Annotated[int, typer.Option(metavar="N", min=1, help="Stop after these.")] = 10,
    credentials_stdin: CredentialsFromStdin = False,
    record: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep the HTTP calls, without secrets.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Run a connector dry: show signals, cursor and HTTP calls. Stores nothing."""
    from syncline.cli.trials import Trial, show_trial

    trial = Trial(
        load_connector(connector),
        config=config or {},
        cursor=None if cursor is None else parse_json(text_of(cursor)),
        credentials=_credentials(credentials_stdin),
        most_pages=pages,
        is_recorded=record is not None,
    )
    with session_of(context).logs():
        perform(lambda _: trial.run())
    if record:
        trial.save(record)
    show_trial(trial, json=json)
    if trial.error is not None:
        raise Failure(f"{type(trial.error).__name__}: {trial.error}") from trial.error
    if trial.has_more:
        say(f"There is more after these {pages} pages: --pages or --cursor")


@commands.command(
    epilog="Example: syncline connector check syncline_tickets:Tickets --replay calls.json"
    """ --config '{"url": "http://127.0.0.1:8000"}'"""
)
def check(
    context: typer.Context,
    connector: Name,
    config: Config = None,
    credentials_stdin: CredentialsFromStdin = False,
    replay: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Answer HTTP calls from a recording.")
    ] = None,
    pages: Annotated[
        int, typer.Option(metavar="N", min=1, help="Most pages that a walk may have.")
    ] = 100,
    json: AsJson = False,
) -> None:
    """Try what an engine relies on. Exits with 1 when the connector fails a check."""
    from syncline.testing.checks import Subject
    from syncline.testing.replay import answers_from

    credentials = _credentials(credentials_stdin)
    subject = Subject(
        make=lambda: load_connector(connector),
        config=config or {},
        credentials=credentials,
        max_pages=pages,
        answers=answers_from(replay, credentials) if replay else None,
    )
    subject.make()  # one that cannot be loaded is wrong use, and no failed check
    with session_of(context).logs():
        results = perform(lambda _: _examine(subject))
    if json:
        print_json(results)
    else:
        rows = [(r["check"].replace("_", " "), r["result"], r["why"]) for r in results]
        print_table(("Check", "Result", "Why"), rows)
    if failed := sum(result["result"] == "failed" for result in results):
        raise Failure(f"{failed} of {len(results)} checks failed")


async def _examine(subject: "Subject") -> list[dict[str, Any]]:
    from syncline.testing.conformance import CHECKS, examine

    return [await examine(check, subject) for check in CHECKS]


def _credentials(wanted: bool) -> Any:
    """Return what stdin holds; arguments can be seen by other users of the machine."""
    return parse_object(sys.stdin.read()) if wanted else None
