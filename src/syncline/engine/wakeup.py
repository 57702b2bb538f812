"""Wakeups: notifications that shorten a pause. Losing one only costs time: the loops also poll."""

import asyncio
import hashlib
from datetime import timedelta

from syncline.clock import new_id
from syncline.store.listener import Listener
from syncline.store.pool import Pool, Transaction
from syncline.store.queue.triggers import Notification

CHECK_EVERY = timedelta(seconds=5)


class Wakeup:
    """LISTEN and NOTIFY on a channel named after the schema; off without a URL to listen at."""

    def __init__(self, listen_url: str | None, pool: Pool, claim_now: asyncio.Event) -> None:
        self.is_on = listen_url is not None
        self._claim_now = claim_now
        # A hash, because a schema's name may be longer than a channel's.
        self._channel = f"syncline_{hashlib.sha256(pool.schema.encode()).hexdigest()[:16]}"
        # For a statement that notifies by itself. This process ignores what it sent.
        self.notification = Notification(self._channel if self.is_on else None, new_id().hex)
        self._listener = Listener(
            listen_url or "", self._channel, self._on_notification, pool.session_settings
        )

    async def notify(self, tx: Transaction) -> None:
        """Notify the workers, once this transaction commits, that something may be due."""
        if self.is_on:
            await tx.notify(self._channel)

    def wake(self) -> None:
        """Wake this process's own worker after a commit that notified under our name.

        Its claim is then sent before the notification arrives, which this process ignores.
        """
        self._claim_now.set()

    async def step(self) -> timedelta:
        """Keep one session listening."""
        if await self._listener.keep_listening():
            self.wake()  # a notification may have come while no session listened
        return CHECK_EVERY

    def close(self) -> None:
        self._listener.close()

    def _on_notification(self, sender: str) -> None:
        if sender != self.notification.sender:
            self.wake()
