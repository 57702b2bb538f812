"""`syncline up` and `syncline run`: run the engine."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from syncline.cli.errors import Failure
from syncline.cli.interrupts import Interrupted
from syncline.cli.session import Session, session_of

commands = typer.Typer()

Host = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="Address to serve on. Default: 127.0.0.1.")
]
Port = Annotated[
    int | None,
    typer.Option(min=0, max=65_535, help="Port to serve on; 0 takes a free one. Default: 8080."),
]

NoWait = Annotated[
    bool, typer.Option("--no-wait", help="Fail at once if the database cannot be reached.")
]


@commands.command(epilog="Example: syncline up --demo")
def up(
    context: typer.Context,
    demo: Annotated[
        bool, typer.Option("--demo", help="Add connections that sync without an account.")
    ] = False,
    host: Host = None,
    port: Port = None,
    no_wait: NoWait = False,
) -> None:
    """Run everything in this process, with a live view.

    It starts the embedded database unless another is configured, migrates it, and runs the
    scheduler, the executor and the dashboard. Ctrl-C stops everything; the data stays.
    """
    from syncline.cli.service import run_with_view

    session = session_of(context)
    settings = _settings(session, host, port)
    _run_to_end(lambda: run_with_view(session, settings, demo=demo, wait=not no_wait))


@commands.command(epilog="Example: syncline run --no-scheduler --log-format json")
def run(
    context: typer.Context,
    no_scheduler: Annotated[
        bool, typer.Option("--no-scheduler", help="Schedule nothing; only run queued jobs.")
    ] = False,
    no_executor: Annotated[
        bool, typer.Option("--no-executor", help="Run no jobs; only schedule them.")
    ] = False,
    dashboard: Annotated[
        bool, typer.Option("--dashboard", help="Also serve the dashboard.")
    ] = False,
    host: Host = None,
    port: Port = None,
    no_wait: NoWait = False,
) -> None:
    """Run headless, for production.

    It logs to stderr and serves the API, health and metrics over HTTP. Any number of processes
    may share a database. SIGTERM or SIGINT lets running jobs finish and exits with 0; a second
    signal exits with 1 at once.
    """
    from syncline.cli.service import Roles, run_headless

    session = session_of(context)
    settings = _settings(session, host, port)
    roles = Roles(scheduler=not no_scheduler, executor=not no_executor)
    _run_to_end(
        lambda: run_headless(session, settings, roles, dashboard=dashboard, wait=not no_wait)
    )


def _settings(session: Session, host: str | None, port: int | None) -> Any:
    api = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    return session.settings(api=api or None)


def _run_to_end(serve: Callable[[], bool]) -> None:
    try:
        clean = serve()
    except Interrupted:
        return  # stopped during the start: nothing had begun
    if not clean:
        raise Failure("some jobs could not be released; they run elsewhere once their leases lapse")
