"""Rotation of the key that encrypts stored credentials, batch by batch."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from syncline.engine.secrets.vault import Vault
from syncline.keyring import CannotOpen
from syncline.policy.audit import Action, Entry
from syncline.services.base import BaseService, ServiceContext
from syncline.store.data import credentials
from syncline.store.pool import Transaction

BATCH_SIZE = 200
BEFORE_ALL = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Rotation:
    """The progress of a rotation; `unreadable` are connections whose credentials no key opens."""

    done: int
    left: int
    unreadable: tuple[UUID, ...] = ()


@dataclass(frozen=True, slots=True)
class _Batch:
    done: int
    last: UUID | None
    unreadable: tuple[UUID, ...]


class Secrets(BaseService):
    def __init__(self, context: ServiceContext, vault: Vault) -> None:
        super().__init__(context)
        self._vault = vault

    async def rotate(
        self,
        on_progress: Callable[[Rotation], None] = lambda _: None,
        *,
        batch_size: int = BATCH_SIZE,
    ) -> Rotation:
        """Encrypt all credentials with the first key.

        Each batch commits by itself, so a rotation can be interrupted, repeated, and run twice at
        the same time.
        """
        total = await self._pool.retrying(self._begin)
        done, after = 0, BEFORE_ALL
        unreadable: tuple[UUID, ...] = ()
        while True:
            batch = await self._pool.retrying(
                partial(self._rotate_batch, after=after, limit=batch_size)
            )
            if batch.last is None:
                return Rotation(done, len(unreadable), unreadable)
            done, after = done + batch.done, batch.last
            unreadable += batch.unreadable
            on_progress(Rotation(done, max(0, total - done), unreadable))

    async def _begin(self, tx: Transaction) -> int:
        """Return how many credentials another key encrypts, and record the rotation if any."""
        total = await credentials.count_others(tx, self._vault.key_id)
        if total:
            after = {"encrypted_with": self._vault.key_id, "connections": total}
            entry = Entry(Action.SECRETS_ROTATE, subject=self._vault.key_id, after=after)
            await self._record(tx, entry, now=await self._clock.now(tx))
        return total

    async def _rotate_batch(self, tx: Transaction, *, after: UUID, limit: int) -> _Batch:
        locked = await credentials.lock_others(tx, self._vault.key_id, after=after, limit=limit)
        fresh: list[tuple[UUID, bytes]] = []
        unreadable: list[UUID] = []
        for stored in locked:
            try:
                fresh.append((stored.connection_id, self._vault.reseal(stored)))
            except CannotOpen:
                unreadable.append(stored.connection_id)
        if fresh:
            await credentials.reseal(tx, fresh, self._vault.key_id)
        last = locked[-1].connection_id if locked else None
        return _Batch(len(fresh), last, tuple(unreadable))
