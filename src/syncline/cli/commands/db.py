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
    from syncline.services.embedded import EmbeddedDatabase

    print(perform(lambda _: EmbeddedDatabase().start()))


@commands.command(epilog="Example: syncline db stop")
def stop() -> None:
    """Stop it, unless a process still uses it."""
    from syncline.services.embedded import EmbeddedDatabase

    if not perform(lambda _: EmbeddedDatabase().stop()):
        raise Failure(
            "other processes still use the embedded database; it stops when the last one exits"
        )
    print("Stopped the embedded database.")


@commands.command(epilog="Example: syncline db upgrade")
def upgrade() -> None:
    """Upgrade it to the newest Postgres installed here. The old data is kept."""
    from syncline.services.embedded import EmbeddedDatabase

    print(perform(lambda _: EmbeddedDatabase().upgrade()))
