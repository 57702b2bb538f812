"""`syncline secrets …` and `connections set-credentials`: what connections sign in with."""

from typing import TYPE_CHECKING, Annotated

import typer

from syncline.cli.commands.connections import ID
from syncline.cli.commands.connections import commands as connection_commands
from syncline.cli.errors import Failure
from syncline.cli.options import AsJson, ConnectionId, FromStdin, read_credentials
from syncline.cli.output import print_json, say
from syncline.cli.session import session_of
from syncline.cli.views.rows import show_connection

if TYPE_CHECKING:
    from syncline.app import Engine
    from syncline.services.secrets import Rotation

commands = typer.Typer(
    help="Make keys, and put credentials under a new one.",
    no_args_is_help=True,
    epilog="Example: syncline secrets key",
)


@connection_commands.command(
    "set-credentials",
    epilog=f"Example: syncline connections set-credentials {ID} --credentials-stdin < token.json",
)
def set_credentials(
    context: typer.Context,
    connection: ConnectionId,
    credentials_stdin: FromStdin = False,
    clear: Annotated[bool, typer.Option("--clear", help="Forget them.")] = False,
    json: AsJson = False,
) -> None:
    """Change what a connection signs in with. One in needs_reauth goes on from its cursor."""
    if credentials_stdin == clear:
        raise typer.BadParameter("give either --credentials-stdin or --clear")
    credentials = read_credentials() if credentials_stdin else None
    changed = session_of(context).call(
        lambda engine: engine.connections.set_credentials(connection, credentials)
    )
    show_connection(changed, json)


@commands.command(epilog="Example: syncline secrets key 2026-11")
def key(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="A name for it.")] = "k1",
) -> None:
    """Print a new key for SYNCLINE_SECRET_KEYS. Keep it apart from the database."""
    from syncline.keyring import new_key

    print(new_key(key_id))


@commands.command(epilog="Example: SYNCLINE_SECRET_KEYS=new:…,old:… syncline secrets rotate")
def rotate(context: typer.Context, json: AsJson = False) -> None:
    """Put all credentials under the first key. It may be interrupted and started again."""

    def tell(progress: "Rotation") -> None:
        if not json:
            say(f"{progress.done} done, {progress.left} left")

    async def run(engine: "Engine") -> "Rotation":
        return await engine.secrets.rotate(tell)

    rotation = session_of(context).call(run)
    unreadable = [str(id_) for id_ in rotation.unreadable]
    if json:
        print_json({"rotated": rotation.done, "unreadable": unreadable})
    else:
        print(f"{rotation.done} credentials are now under the first key.")
    if unreadable:
        raise Failure(
            f"{len(unreadable)} credentials open with none of the keys; "
            f"the first is of connection {unreadable[0]}"
        )
