"""The one thing an author writes: a class that turns a cursor into a page."""

from collections.abc import Awaitable
from typing import Any

from syncline.model import Connection, SyncResult


class Connector:
    """Syncs one provider: cursor in, page out.

    Set `provider` and override `sync`, as `async def` or as a plain `def` (which runs in a
    thread). Raise `RateLimited`, `Unauthorized`, `Transient` or `Permanent` when no page can be
    had; anything else that is raised is retried with backoff.
    """

    provider: str = ""

    def sync(self, connection: Connection, cursor: Any) -> SyncResult | Awaitable[SyncResult]:
        """Return the page after `cursor`, which is None on the first call."""
        raise NotImplementedError(f"{type(self).__name__} does not define sync()")
