"""The walks that remove finished jobs, in the order of their ids.

Ids made by the engine are ordered by time, so jobs of an age are neighbours. A walk looks at each
job once, when it reaches its age, and remembers how far it has come. Not every job can go then: one
may have waited, been retried, been held, or have an id that says nothing about its age. Those are
for a later walk.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID

from syncline.clock import Clock, monotonic
from syncline.engine.upkeep.batch_size import BatchSize
from syncline.settings import Settings
from syncline.store.data import attempts, retention
from syncline.store.data.retention import OldJobs, Position
from syncline.store.pool import Pool, Transaction
from syncline.store.stats.activity import first_id_at

FIRST_ID, LAST_ID = UUID(int=0), UUID(int=2**128 - 1)
BEGINNING = Position(FIRST_ID)
EARLIEST = datetime(2, 1, 1, tzinfo=UTC)  # nothing finished before
OTHERS, REST = "others", "rest"
HOST_CLOCKS_APART = timedelta(days=1)  # how far ahead of the database a host makes its ids
REST_AT_LEAST_EVERY, REST_AT_MOST_EVERY = timedelta(days=1), timedelta(minutes=10)

Range = tuple[UUID, UUID]  # after the first id, up to and with the second


@dataclass(slots=True)
class PruneReport:
    """What was removed; `empty_jobs` are the runs that had brought nothing, `jobs` the others."""

    jobs: int = 0
    empty_jobs: int = 0
    signals: int = 0
    audit: int = 0

    def counts(self) -> dict[str, int]:
        return asdict(self)

    def take(self) -> dict[str, int]:
        """Return the counts, and count from zero again."""
        counts = self.counts()
        self.jobs = self.empty_jobs = self.signals = self.audit = 0
        return counts


class JobRules:
    """How long jobs are kept, and at which ages walks look at them."""

    def __init__(self, settings: Settings) -> None:
        self.others, self.empty = settings.retention.jobs, settings.retention.empty_jobs
        # A job is made ahead of its slot and starts up to its jitter later.
        rules = settings.scheduler.rules
        self._lead = settings.scheduler.lookahead + rules.default_interval * float(
            rules.jitter_pct_max
        )

    @property
    def ages(self) -> dict[str, timedelta]:
        """The age of a job's id at which each walk looks at it, by the walk's name.

        Empty runs are looked at twice, the second time for those that took long to end, because
        their interval and so their jitter is longer, or because they were retried.
        """
        ages = {}
        if self.empty is not None and self.empty != self.others:
            ages["empty"] = self.empty + self._lead
            ages["empty_again"] = 2 * ages["empty"]
        if self.others is not None:
            ages = {name: age for name, age in ages.items() if age < self.others}
            ages[OTHERS] = self.others + self._lead
        return ages

    @property
    def rest_every(self) -> timedelta:
        """How often to walk over what the other walks leave out."""
        shortest = self.empty or REST_AT_LEAST_EVERY
        return min(max(shortest, REST_AT_MOST_EVERY), REST_AT_LEAST_EVERY)

    def old(self, span: Range, now: datetime) -> OldJobs:
        """Return which jobs in a range of ids are no longer kept."""
        before = EARLIEST if self.others is None else now - self.others
        empty_before = EARLIEST if self.empty is None else now - self.empty
        return OldJobs(*span, before, empty_before)


@dataclass(slots=True)
class JobWalk:
    """A walk over ranges of ids, a batch per step; with a name, its position is stored."""

    pool: Pool
    clock: Clock
    rules: JobRules
    report: PruneReport
    ranges: list[Range]
    name: str | None = None
    size: BatchSize = field(default_factory=BatchSize)

    async def batch(self) -> bool:
        """Prune the next jobs; return whether there may be more."""
        began = monotonic()
        async with self.pool.transaction() as tx:
            now = await self.clock.now(tx)
            after, until = self.ranges[0]
            end = await retention.batch_end(tx, after, until, size=self.size.rows)
            old = self.rules.old((after, end or until), now)
            unkept = await self._prune(tx, old)
            if not unkept:
                await self._save(tx, end, now)
        if unkept:
            # In a transaction of its own, because connections are locked before jobs.
            async with self.pool.transaction() as tx:
                await retention.keep_last(tx, unkept)
                await self._prune(tx, old)
                await self._save(tx, end, now)
        self._move(end)
        self.size.learn(monotonic() - began, is_full=end is not None)
        return bool(self.ranges)

    async def _prune(self, tx: Transaction, old: OldJobs) -> list[UUID]:
        """Delete old jobs; return connections whose last completion or success must be copied."""
        pruned = await retention.prune_jobs(tx, old)
        self.report.jobs += pruned.jobs
        self.report.empty_jobs += pruned.empty_jobs
        await attempts.prune(tx, old.after, old.until)
        return sorted(pruned.unkept)

    async def _save(self, tx: Transaction, end: UUID | None, now: datetime) -> None:
        """Store how far this walk has come; the one over the rest begins anew at its end."""
        if self.name is None:
            return
        position = Position(end or self.ranges[0][1])
        if end is None and len(self.ranges) == 1:
            last_id = FIRST_ID if self.name == REST else position.last_id
            position = Position(last_id, completed_at=now)
        await retention.save_position(tx, self.name, position)

    def _move(self, end: UUID | None) -> None:
        if end is None:
            del self.ranges[0]
        else:
            self.ranges[0] = (end, self.ranges[0][1])


class JobWalks:
    """Makes the walks of a round, and remembers how large their batches may be."""

    def __init__(self, pool: Pool, clock: Clock, settings: Settings) -> None:
        self._pool = pool
        self._clock = clock
        self._rules = JobRules(settings)
        self._sizes: dict[str, BatchSize] = {}

    def over_everything(self, report: PruneReport) -> list[JobWalk]:
        """Return a walk over all jobs that does not care how far others have come."""
        if not self._rules.ages:
            return []
        return [JobWalk(self._pool, self._clock, self._rules, report, [(FIRST_ID, LAST_ID)])]

    async def go_on(self, report: PruneReport) -> list[JobWalk]:
        """Return the walks that have something to look at now, each from where it stopped."""
        async with self._pool.transaction() as tx:
            now = await self._clock.now(tx)
            positions = await retention.read_positions(tx)
        walks = []
        for name, age in self._rules.ages.items():
            after, until = positions.get(name, BEGINNING).last_id, first_id_at(now - age)
            if after < until:
                walks.append(self._walk(name, [(after, until)], report))
        if self._rules.ages and (ranges := self._rest(positions, now)):
            walks.append(self._walk(REST, ranges, report))
        return walks

    def _walk(self, name: str, ranges: list[Range], report: PruneReport) -> JobWalk:
        size = self._sizes.setdefault(name, BatchSize())
        return JobWalk(self._pool, self._clock, self._rules, report, ranges, name, size)

    def _rest(self, positions: Mapping[str, Position], now: datetime) -> list[Range]:
        """Return what no other walk will look at again; nothing if that was walked lately.

        That is what the walk over the oldest jobs has passed, and ids that are not made of time.
        """
        rest = positions.get(REST, BEGINNING)
        is_under_way = rest.last_id != FIRST_ID
        again_at = (rest.completed_at or EARLIEST) + self._rules.rest_every
        if not is_under_way and now < again_at:
            return []
        passed = positions.get(OTHERS, BEGINNING).last_id
        ranges = [(FIRST_ID, passed), (first_id_at(now + HOST_CLOCKS_APART), LAST_ID)]
        return [(max(after, rest.last_id), end) for after, end in ranges if rest.last_id < end]
