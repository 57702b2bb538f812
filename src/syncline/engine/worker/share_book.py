"""The caps and weights that people have set, as a process knows them."""

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from syncline.clock import monotonic
from syncline.engine.context import EngineContext
from syncline.policy.caps import EVERY, Cap, Rooms
from syncline.store.pool import SessionLease, Transaction
from syncline.store.queue import cap_blocks, caps

STALE_SECONDS = 0.75
COUNT_ALL_EVERY_SECONDS = 5.0
NEW_FOR = timedelta(seconds=30)  # a claim that knew nothing of a cap has ended by then


class ShareBook:
    """Caps and weights, read at most 0.75 s before a claim."""

    def __init__(self, context: EngineContext) -> None:
        self._clock = context.clock
        self.is_fair = context.settings.fairness.enabled
        self.caps: dict[tuple[str, str], Cap] = {}
        self.is_capped = False  # by a cap that somebody set
        self.paused: frozenset[str] = frozenset()  # tenants, which are among the caps with none
        self.weights: dict[str, float] = {}
        self._look_at = 0.0
        self._count_all_at = 0.0
        self._has_uncounted = True

    async def look(self, session: SessionLease) -> None:
        """Read them, unless that was a moment ago."""
        if monotonic() < self._look_at:
            return
        async with session() as tx:
            found, pauses, weights = await caps.read(tx)
        self.caps = {cap.key: cap for cap in (*found, *pauses)}
        self.paused = frozenset(cap.tenant_id for cap in pauses)
        self.is_capped = bool(found)
        self.weights = weights if self.is_fair else {}
        self._look_at = monotonic() + STALE_SECONDS

    def look_again(self) -> None:
        """Let the next look read them, however soon it comes."""
        self._look_at = 0.0

    @property
    def capped_tenants(self) -> frozenset[str]:
        return frozenset(tenant for tenant, _ in self.caps if tenant != EVERY)

    def covering(self, pairs: set[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return the caps that jobs of these tenants and providers are under."""
        keys = {
            key
            for tenant, provider in pairs
            for key in ((tenant, EVERY), (EVERY, provider), (tenant, provider))
        }
        return sorted(keys & self.caps.keys())

    async def lock_and_count(
        self, tx: Transaction, keys: Sequence[tuple[str, str]], *, giving_back: UUID | None = None
    ) -> tuple[Rooms, bool]:
        """Lock caps and count what runs; return where there is room, and whether all were free.

        The count is a statement after the lock, so it sees what the last holder committed. It
        counts all running jobs as long as some may have been claimed without regard to the caps.
        A block is counted whole until it is given back, or has ended and is dropped.
        """
        now = self._clock.instant()
        held, has_new = await caps.lock(tx, keys, now=now, new_for=NEW_FOR)
        if giving_back is not None:
            await cap_blocks.give_back(tx, giving_back)
        all_of_them = has_new or self._has_uncounted or monotonic() >= self._count_all_at
        found = await caps.count(tx, now=now, with_uncounted=all_of_them)
        if found.has_ended_block:
            await cap_blocks.drop_ended(tx, now=now)
            found = await caps.count(tx, now=now, with_uncounted=all_of_them)
        if all_of_them:
            self._has_uncounted = any(
                count and self.covering({pair}) for pair, count in found.uncounted.items()
            )
            self._count_all_at = monotonic() + COUNT_ALL_EVERY_SECONDS
        known = self.caps | {cap.key: cap for cap in held}
        held_keys = {cap.key for cap in held}
        rooms = Rooms(known.values(), found.running, held=held_keys, in_blocks=found.in_blocks)
        return rooms, len(held) == len(keys)
