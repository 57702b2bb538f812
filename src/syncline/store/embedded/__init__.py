"""A Postgres server that comes with Syncline, shared by all processes of one home folder."""

from syncline.store.embedded.binaries import Binaries, find_binaries, read_binaries
from syncline.store.embedded.server import EmbeddedPostgres, keep_running, stop, upgrade

__all__ = [
    "Binaries",
    "EmbeddedPostgres",
    "find_binaries",
    "keep_running",
    "read_binaries",
    "stop",
    "upgrade",
]
