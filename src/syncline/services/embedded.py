"""The embedded database, for the people who run it: start, stop and upgrade it."""

from pathlib import Path

from syncline.store import embedded


class EmbeddedDatabase:
    """The embedded Postgres of one home; None is the default home."""

    def __init__(self, home: Path | None = None) -> None:
        self._home = home

    async def start(self) -> str:
        """Start it if it is down, keep it running until `stop`, and return its URL."""
        return await embedded.keep_running(self._home)

    async def stop(self) -> bool:
        """Stop it; return False if other processes still use it."""
        return await embedded.stop(self._home)

    async def upgrade(self) -> str:
        """Upgrade it to the newest Postgres installed here, and return what was done."""
        return await embedded.upgrade(self._home)
