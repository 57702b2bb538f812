"""What every service is built from, and how a change is made once."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from syncline.clock import Clock
from syncline.engine.wakeup import Wakeup
from syncline.model import IdempotentRequest
from syncline.policy.audit import APPLICATION, Actor, Entry
from syncline.settings import Settings
from syncline.store.data import audit, idempotency
from syncline.store.pool import Pool, Transaction

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ServiceContext:
    """The database, the settings, the clock and the wakeup that services share, and who acts."""

    pool: Pool
    settings: Settings
    clock: Clock
    wakeup: Wakeup
    actor: Actor = APPLICATION


class BaseService:
    def __init__(self, context: ServiceContext) -> None:
        self._pool = context.pool
        self._settings = context.settings
        self._clock = context.clock
        self._wakeup = context.wakeup
        self._actor = context.actor

    async def _change(
        self, change: Callable[[Transaction], Awaitable[T]], once: "Once[T] | None" = None
    ) -> T:
        """Make a change in one transaction and return its result.

        With `once`, a request that was made before raises `Repeated` and changes nothing.
        """

        async def work(tx: Transaction) -> T:
            if once is None:
                return await change(tx)
            before = await idempotency.begin(tx, once.request, now=await self._clock.now(tx))
            if before is not None:
                raise Repeated(before.answer, before.digest == once.request.digest)
            result = await change(tx)
            await idempotency.finish(tx, once.request, once.render(result))
            return result

        return await self._pool.retrying(work)

    async def _record(self, tx: Transaction, *entries: Entry, now: datetime) -> None:
        """Record in the audit what this transaction changes, and who does it."""
        await audit.record(tx, self._actor, entries, now=now)


@dataclass(frozen=True, slots=True)
class Once(Generic[T]):
    """A request that must take effect once, and how to render the answer that is stored."""

    request: IdempotentRequest
    render: Callable[[T], str]


class Repeated(Exception):
    """The request was answered before. Nothing was changed this time."""

    def __init__(self, answer: str, is_same: bool) -> None:
        super().__init__(answer, is_same)
        self.answer = answer
        self.is_same = is_same
