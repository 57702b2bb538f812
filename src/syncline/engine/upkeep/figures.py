"""Writes what this process has seen, and adds up what all of them wrote."""

from datetime import datetime, timedelta
from uuid import UUID

from syncline.clock import Clock, monotonic, new_id
from syncline.engine.upkeep.heartbeat import Heartbeat
from syncline.policy.figures import KEPT, LENGTHS, Figures, Span, Tally, start_of
from syncline.store.pool import Pool, Transaction
from syncline.store.stats import figures
from syncline.telemetry.figures import FigureBook

WRITE_EVERY = timedelta(seconds=10)
ADD_UP_SECONDS = 60.0
LATE = timedelta(
    seconds=15
)  # a process writes a minute's last figures this much after it, or never
PRUNE_SECONDS = 3600.0


class FigureKeeper:
    """Writes a few rows every ten seconds, which nobody updates, so nobody waits for another.

    The process that started first adds them up once a minute. A report is deleted in the
    transaction that adds it, so it counts once, whoever does it.
    """

    def __init__(self, pool: Pool, clock: Clock, heartbeat: Heartbeat, book: FigureBook) -> None:
        self._pool = pool
        self._clock = clock
        self._heartbeat = heartbeat
        self._book = book
        self._unwritten: tuple[UUID, datetime, dict[str, Tally]] | None = None
        self._counted_from: datetime | None = None  # when what the book has began
        self._add_up_at = monotonic() + ADD_UP_SECONDS
        self._prune_at = monotonic() + ADD_UP_SECONDS

    async def step(self) -> timedelta:
        """Write what was seen; return how long to wait, to the end of the minute at most."""
        now = await self.write()
        if monotonic() >= self._add_up_at:
            self._add_up_at = monotonic() + ADD_UP_SECONDS
            if await self._heartbeat.is_first():
                await self.add_up()
        return min(WRITE_EVERY, start_of(Span.MINUTE, now) + LENGTHS[Span.MINUTE] - now)

    async def write(self) -> datetime:
        """Write what was seen since the last time; return the time."""
        async with self._pool.transaction() as tx:
            now = await self._clock.now(tx)
            if self._unwritten is None and (seen := self._book.take()):
                self._unwritten = new_id(), self._minute(now), seen
            if self._unwritten is not None:
                await figures.report(tx, *self._unwritten)
        self._unwritten, self._counted_from = None, now
        return now

    def _minute(self, now: datetime) -> datetime:
        """Return the minute that the latest figures belong to.

        A step comes at the end of each minute, so they belong to the one in which they began.
        """
        began = self._counted_from
        is_recent = began is not None and now - began <= 2 * WRITE_EVERY
        return start_of(Span.MINUTE, began if began is not None and is_recent else now)

    async def finish(self) -> None:
        """Write what is left when the process ends."""
        await self.write()

    async def add_up(self) -> None:
        """Add the reports of past minutes to the figures, and remove old figures."""
        async with self._pool.transaction() as tx:
            now = await self._clock.now(tx)
            reports = await figures.take_reports(tx, before=start_of(Span.MINUTE, now - LATE))
            for span in Span if reports else ():
                await _add(tx, span, reports)
            if monotonic() >= self._prune_at:
                for span in Span:
                    await figures.prune(tx, span, before=now - KEPT[span])
                self._prune_at = monotonic() + PRUNE_SECONDS


async def _add(tx: Transaction, span: Span, reports: list[Figures]) -> None:
    """Add reports to the minutes, hours or days that they belong to."""
    sums: dict[tuple[datetime, str], Tally] = {}
    for one in reports:
        key = start_of(span, one.starts_at), one.provider_slug
        sums.setdefault(key, Tally()).add(one.tally)
    for known in await figures.lock(tx, span, sums):
        if (found := sums.get((known.starts_at, known.provider_slug))) is not None:
            found.add(known.tally)
    await figures.save(tx, span, dict(sorted(sums.items())))
