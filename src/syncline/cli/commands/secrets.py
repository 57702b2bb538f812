"""`syncline secrets …`: the keys that encrypt stored credentials."""

from typing import TYPE_CHECKING, Annotated

import typer

from syncline.cli.errors import Failure
from syncline.cli.options import AsJson
from syncline.cli.output import print_json, say
from syncline.cli.session import session_of

if TYPE_CHECKING:
    from syncline.app import Engine
    from syncline.services.secrets import Rotation

commands = typer.Typer(
    help="Create encryption keys, and re-encrypt credentials with a new one.",
    no_args_is_help=True,
    epilog="Example: syncline secrets key",
)


@commands.command(epilog="Example: syncline secrets key 2026-11")
def key(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="A name for the key.")] = "k1",
) -> None:
    """Print a new key for SYNCLINE_SECRET_KEYS. Store it away from the database."""
    from syncline.keyring import new_key

    print(new_key(key_id))


@commands.command(epilog="Example: SYNCLINE_SECRET_KEYS=new:…,old:… syncline secrets rotate")
def rotate(context: typer.Context, json: AsJson = False) -> None:
    """Encrypt all credentials with the first key. You may interrupt it and run it again."""

    def show_progress(progress: "Rotation") -> None:
        if not json:
            say(f"{progress.done} done, {progress.left} left")

    async def run(engine: "Engine") -> "Rotation":
        return await engine.secrets.rotate(show_progress)

    rotation = session_of(context).call(run)
    unreadable = [str(id_) for id_ in rotation.unreadable]
    if json:
        print_json({"rotated": rotation.done, "unreadable": unreadable})
    else:
        print(f"Encrypted {rotation.done} credentials with the first key.")
    if unreadable:
        raise Failure(
            f"none of the keys decrypts {len(unreadable)} credentials; "
            f"the first belongs to connection {unreadable[0]}"
        )
