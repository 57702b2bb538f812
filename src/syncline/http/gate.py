"""Providers that nobody may call at present."""

from collections.abc import Mapping

from syncline.clock import monotonic, pause
from syncline.errors import Deferred

PATIENCE_SECONDS = 2.0  # a call waits this long in its slot; a longer wait ends its run


class ClosedProviders:
    """When each closed provider may be called again, by this process's clock."""

    def __init__(self) -> None:
        self._until: Mapping[str, float] = {}

    def set(self, until: Mapping[str, float]) -> None:
        self._until = until

    async def wait(self, provider_slug: str) -> None:
        """Wait until the provider may be called; raise `Deferred` if that is too long."""
        if not self._until:
            return
        seconds = self._until.get(provider_slug, 0.0) - monotonic()
        if seconds > PATIENCE_SECONDS:
            raise Deferred(provider_slug, seconds)
        if seconds > 0:
            await pause(seconds)
