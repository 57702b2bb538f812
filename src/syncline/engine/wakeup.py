"""A notification that shortens a pause; polling stays the truth, losing one costs time only."""

import hashlib
from collections.abc import Callable
from datetime import timedelta

from syncline.clock import new_id
from syncline.store.listener import Listener
from syncline.store.pool import Transaction

CHECK_EVERY = timedelta(seconds=5)


class Wakeup:
    """LISTEN and NOTIFY on a channel named for the schema; without an address, nothing at all."""

    def __init__(
        self, listen_url: str | None, schema: str, session_settings: dict[str, str]
    ) -> None:
        self.is_on = listen_url is not None
        self.name = new_id().hex  # who notifies, for one that then wakes its own worker itself
        # A hash, because a schema's name may be longer than a channel's.
        self._channel = f"syncline_{hashlib.sha256(schema.encode()).hexdigest()[:16]}"
        self._listener = Listener(
            listen_url or "", self._channel, self._on_notification, session_settings
        )
        self._heard: Callable[[], None] | None = None

    @property
    def channel(self) -> str | None:
        """Where to notify, for a statement that does so itself."""
        return self._channel if self.is_on else None

    async def notify(self, tx: Transaction) -> None:
        """Tell the workers, once this transaction commits, that something may be due."""
        if self.is_on:
            await tx.notify(self._channel)

    def wake(self) -> None:
        """Wake this process's worker, after the commit of what was notified under our name.

        Its claim is then under way before the notification would have come, and no second one
        follows in vain.
        """
        if self._heard is not None:
            self._heard()

    def on_heard(self, heard: Callable[[], None]) -> None:
        self._heard = heard

    async def step(self) -> timedelta:
        """Keep one connection listening."""
        if await self._listener.keep_listening():
            self.wake()  # what came while nobody listened
        return CHECK_EVERY

    def close(self) -> None:
        self._listener.close()

    def _on_notification(self, name: str) -> None:
        if name != self.name:
            self.wake()
