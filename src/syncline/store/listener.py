"""A database session that listens for notifications."""

from collections.abc import Callable
from typing import Any

from syncline.store.connect import connect
from syncline.store.pool import COMMAND_TIMEOUT_SECONDS


class Listener:
    """Keeps one session that listens to a channel."""

    def __init__(
        self,
        url: str,
        channel: str,
        heard: Callable[[str], None],
        session_settings: dict[str, str],
    ) -> None:
        self._url = url
        self._session_settings = session_settings
        self._channel = channel
        self._heard = heard
        self._connection: Any = None

    async def keep_listening(self) -> bool:
        """Return whether it had to start listening; a socket that died silently is noticed."""
        if self._connection is not None and not self._connection.is_closed():
            try:
                await self._connection.fetchval("SELECT 1", timeout=COMMAND_TIMEOUT_SECONDS)
            except Exception:
                self.close()
                raise
            return False
        connection = await connect(
            self._url,
            timeout=COMMAND_TIMEOUT_SECONDS,
            command_timeout=COMMAND_TIMEOUT_SECONDS,
            server_settings=self._session_settings,
        )
        try:
            await connection.add_listener(self._channel, lambda *heard: self._heard(heard[-1]))
        except BaseException:
            connection.terminate()  # a session without a listener must not count as listening
            raise
        self._connection = connection
        return True

    def close(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None
