"""`syncline db …`: the embedded database."""

import typer

from syncline.cli.errors import Failure
from syncline.cli.session import perform

commands = typer.Typer(
    help="Manage the embedded database.",
    no_args_is_help=True,
    epilog="Example: syncline db stop",
)


@commands.command(epilog='Example: psql "$(syncline db url)"')
def url() -> None:
    """Print its URL and keep it running until `syncline db stop`."""
    from syncline.store.embedded import keep_running

    print(perform(lambda _: keep_running()))


@commands.command(epilog="Example: syncline db stop")
def stop() -> None:
    """Stop it, unless a process still uses it."""
    from syncline.store import embedded as server

    if not perform(lambda _: server.stop()):
        raise Failure(
            "other processes still use the embedded database; it stops when the last one exits"
        )
    print("Stopped the embedded database.")


@commands.command(epilog="Example: syncline db upgrade")
def upgrade() -> None:
    """Upgrade it to the newest Postgres installed here. The old data is kept."""
    from syncline.store import embedded as server

    print(perform(lambda _: server.upgrade()))
