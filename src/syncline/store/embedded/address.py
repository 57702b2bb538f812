"""Where the server listens: on a socket in a private folder, not on the network."""

import hashlib
import os
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import asyncpg

from syncline.errors import EmbeddedError
from syncline.store.connect import SEARCH_PATH

USER = "syncline"
DATABASE = "syncline"
PORT = 5432  # only part of the socket's name
SOCKET_PATH_BYTES = 100  # systems differ; the smallest limit is 104
CONNECT_SECONDS = 5
NO_ANSWER = (
    OSError,
    TimeoutError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # the server was killed under the connection
)

HAS_DATABASE = """
    -- Whether the one database of the embedded server exists yet.
    SELECT EXISTS (SELECT FROM pg_database WHERE datname = 'syncline')
"""

CREATE_DATABASE = """
    -- The database that the embedded server's URL names.
    CREATE DATABASE syncline
"""


@dataclass(frozen=True, slots=True)
class Postmaster:
    """The content of `postmaster.pid`; a killed server leaves the file behind."""

    pid: int
    port: int
    socket_folder: Path
    is_ready: bool


def read_postmaster(data: Path) -> Postmaster | None:
    """Return the content of `postmaster.pid`, or None if it is missing or incomplete."""
    try:
        pid, _, _, port, folder, _, _, status = (data / "postmaster.pid").read_text().splitlines()
        return Postmaster(int(pid), int(port), Path(folder), status.strip() == "ready")
    except (OSError, ValueError):
        return None


async def reach(data: Path) -> str | None:
    """Return the server's URL if it answers; an existing process id proves nothing."""
    postmaster = read_postmaster(data)
    if postmaster is None or not postmaster.is_ready or postmaster.port != PORT:
        return None  # a server on another port belongs to an upgrade
    try:
        await _ensure_database(url_of(postmaster, "postgres"))
    except asyncpg.TooManyConnectionsError:
        pass  # busy, but alive
    except NO_ANSWER:
        return None
    return url_of(postmaster, DATABASE)


async def _ensure_database(url: str) -> None:
    connection = await asyncpg.connect(
        url, timeout=CONNECT_SECONDS, server_settings={"search_path": SEARCH_PATH}
    )
    try:
        if not await connection.fetchval(HAS_DATABASE):
            await connection.execute(CREATE_DATABASE)
    finally:
        await connection.close()


def url_of(postmaster: Postmaster, database: str) -> str:
    # The port is spelled out because PGPORT would replace it otherwise.
    host = quote(str(postmaster.socket_folder))
    return f"postgresql://{USER}@/{database}?host={host}&port={postmaster.port}"


def make_socket_folder(home: Path) -> Path:
    """Return this home's folder for sockets: private, and always the same.

    XDG_RUNTIME_DIR would not do: it is removed at logout, even if the server still runs.
    """
    for base in ("/tmp", tempfile.gettempdir()):  # noqa: S108  (made private and checked below)
        folder = Path(base, socket_folder_name(home))
        if len(os.fsencode(folder / f".s.PGSQL.{PORT}")) > SOCKET_PATH_BYTES:
            continue
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError:
            continue
        _refuse_if_shared(folder)
        return folder
    raise EmbeddedError("no short folder for the database's socket: set TMPDIR to one")


def socket_folder_name(home: Path) -> str:
    return f"syncline-{os.geteuid()}-{hashlib.sha256(os.fsencode(home)).hexdigest()[:12]}"


def _refuse_if_shared(folder: Path) -> None:
    found = folder.lstat()  # a link is refused too: its owner decides where it points
    is_private = stat.S_ISDIR(found.st_mode) and not stat.S_IMODE(found.st_mode) & 0o077
    if found.st_uid != os.geteuid() or not is_private:
        raise EmbeddedError(f"{folder} is not a private folder of this user: remove it")
