"""`syncline connector …`: create, try and check a connector of your own."""

import keyword
import re
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Annotated, Any

import typer

from syncline.cli.errors import Failure
from syncline.cli.options import (
    AsJson,
    Config,
    FromStdin,
    parse_json,
    read_credentials,
    text_of,
)
from syncline.cli.output import print_json, print_table, say
from syncline.cli.session import load_connector, perform, session_of

if TYPE_CHECKING:
    from syncline.testing.checks import Subject

commands = typer.Typer(
    help="Create, try and check a connector of your own.",
    no_args_is_help=True,
    epilog="Example: syncline connector new tickets",
)

PROVIDER_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
# Where each template goes. `{module}` is the name of the connector's module.
TARGETS = {
    "pyproject.toml.txt": "pyproject.toml",
    "README.md.txt": "README.md",
    "connector.py.txt": "{module}.py",
    "test_connector.py.txt": "tests/test_{module}.py",
    "calls.json.txt": "tests/calls.json",
}

Name = Annotated[
    str,
    typer.Argument(metavar="MODULE:CLASS", help="Its class, installed or in the current folder."),
]


@commands.command(epilog="Example: syncline connector new tickets")
def new(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="Provider name: lowercase letters, digits, hyphens."),
    ],
    folder: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Where to write it. Default: a new folder NAME."),
    ] = None,
) -> None:
    """Write a package with a working connector and passing tests. Overwrites nothing."""
    target = folder or Path(name)
    for path in _write_package(name, target):
        print(f"Wrote {target / path}.")
    print(f"Next: cd {target} && pip install -e . && pytest")


def _write_package(name: str, folder: Path) -> list[str]:
    """Write the package and return its files; refuse if one of them exists."""
    if not PROVIDER_NAME.fullmatch(name) or len(name) > 50:
        raise typer.BadParameter(
            f"{name!r} is not a valid name; use up to 50 lowercase letters, digits and hyphens, "
            "as in my-tickets"
        )
    words = _words(name)
    texts = {
        target.format_map(words): Template(_template(source)).substitute(words)
        for source, target in TARGETS.items()
    }
    taken = [path for path in texts if (folder / path).exists()]
    if taken:
        raise Failure(f"{folder / taken[0]} exists; nothing was written")
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        with (folder / path).open("x", encoding="utf-8") as file:  # never overwrite a file
            file.write(text)
    return list(texts)


def _words(name: str) -> dict[str, str]:
    class_name = "".join(part.capitalize() for part in name.split("-"))
    if keyword.iskeyword(class_name):  # None, True, False
        class_name += "Connector"
    return {
        "provider": name,
        "module": f"syncline_{name.replace('-', '_')}",
        "class_name": class_name,
        "version": version("syncline"),
    }


def _template(name: str) -> str:
    return files("syncline.cli").joinpath("templates", name).read_text("utf-8")


@commands.command(
    epilog="Example: syncline connector run syncline_tickets:Tickets"
    """ --config '{"url": "http://127.0.0.1:8000"}' --record calls.json"""
)
def run(
    context: typer.Context,
    connector: Name,
    config: Config = None,
    cursor: Annotated[
        str | None,
        typer.Option(metavar="JSON|@FILE", help="Where to start. Default: the beginning."),
    ] = None,
    pages: Annotated[int, typer.Option(metavar="N", min=1, help="Stop after N pages.")] = 10,
    credentials_stdin: FromStdin = False,
    record: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Save the HTTP calls, without secrets.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Run a connector and show its signals, cursor and HTTP calls. Stores nothing."""
    from syncline.cli.trials import Trial, show_trial

    trial = Trial(
        load_connector(connector),
        config=config or {},
        cursor=None if cursor is None else parse_json(text_of(cursor)),
        credentials=read_credentials() if credentials_stdin else None,
        most_pages=pages,
        is_recorded=record is not None,
    )
    with session_of(context).logs():
        perform(lambda _: trial.run())
    if record:
        trial.save(record)
    show_trial(trial, json=json)
    if trial.failure is not None:
        raise Failure(trial.failure) from trial.error
    if trial.has_more:
        say(f"There is more after {pages} pages: raise --pages, or continue with --cursor.")


@commands.command(
    epilog="Example: syncline connector check syncline_tickets:Tickets --replay calls.json"
    """ --config '{"url": "http://127.0.0.1:8000"}'"""
)
def check(
    context: typer.Context,
    connector: Name,
    config: Config = None,
    credentials_stdin: FromStdin = False,
    replay: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Answer HTTP calls from a recording.")
    ] = None,
    pages: Annotated[
        int, typer.Option(metavar="N", min=1, help="Fail if a sync takes more pages.")
    ] = 100,
    json: AsJson = False,
) -> None:
    """Check that a connector keeps the engine's rules. Exits with 1 if a check fails."""
    from syncline.testing.checks import Subject
    from syncline.testing.replay import answers_from

    credentials = read_credentials() if credentials_stdin else None
    subject = Subject(
        make=lambda: load_connector(connector),
        config=config or {},
        credentials=credentials,
        max_pages=pages,
        answers=answers_from(replay, credentials) if replay else None,
    )
    subject.make()  # a connector that cannot be loaded is wrong use, not a failed check
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
