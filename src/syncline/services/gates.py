"""Gates of providers: which are shut and why; pause and resume a provider."""

from syncline.policy.gates import Gate
from syncline.services.base import BaseService
from syncline.store.pool import Transaction
from syncline.store.queue import gates


class Gates(BaseService):
    async def list(self) -> list[Gate]:
        """Return the gates of all providers that are paused, closed or down."""
        return await self._pool.reading(gates.read)

    async def pause(self, provider_slug: str, *, because: str | None = None) -> None:
        """Start no job of this provider until it is resumed; running ones end as usual."""

        async def change(tx: Transaction) -> None:
            await gates.pause(tx, provider_slug, because, now=await self._clock.now(tx))

        await self._change(change)

    async def resume(self, provider_slug: str) -> bool:
        """Let the provider be called again, whatever shut it; return whether anything had."""

        async def change(tx: Transaction) -> bool:
            now = await self._clock.now(tx)
            rate = await gates.read_usual_rate(tx, provider_slug)
            resumed = await gates.resume(tx, provider_slug, now=now, rate=rate)
            await self._wakeup.notify(tx)
            return resumed

        return await self._change(change)
