"""What a process knows about whose due jobs stand where in the queue."""

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from heapq import heapify, heappop, heappush
from uuid import UUID

from syncline.clock import Clock, monotonic
from syncline.policy.caps import EVERY, Rooms
from syncline.policy.lines import BEFORE_ALL, FIRST_ID, Line, find_gaps
from syncline.store.pool import SessionLease
from syncline.store.queue import walks
from syncline.store.queue.walks import Standing, Stretch

CHUNK = 5000  # jobs that one statement reads
MOST_OTHERS, MOST_SPECIAL = 10_000, 2000  # jobs that are known of each line, and of each tenant
MOST_ENDED, MOST_ENDED_READ = 20_000, 200_000
LOOK_SECONDS = 0.02  # the longest that one look goes on
TAIL_EVERY_SECONDS, LINES_EVERY_SECONDS = 0.03, 0.1
PASS_EVERY_SECONDS = 0.25
SHARE_OF_PASSES = 0.1
MOST_NEW_LINES = 10  # found by one look
STAMPED_BEFORE = timedelta(seconds=1)  # what comes now may be stamped so much earlier

Key = tuple[str, int]  # a line: its provider and priority


class QueueWalk:
    """Walks along the lines of due jobs, and remembers the first ones of some tenants apart.

    The walk goes on from where it was, so that it finds what comes at the end of each line at
    once. A pass from the very start, a chunk at a time, finds whatever came in before that, and
    counts what each tenant has due. Passes take a tenth of the time at most. None of it has to be
    right for a claim to be right, because the claim checks every job under its lock.
    """

    def __init__(self, clock: Clock, providers: Sequence[str]) -> None:
        self._clock = clock
        self._providers = providers
        self._special: frozenset[str] = frozenset()
        self.reset(BEFORE_ALL)

    def reset(self, since: datetime) -> None:
        """Forget everything, and begin each line at this time; a pass finds what is before."""
        self._since = since
        self._ends: dict[Key, Line] = {}  # how far each line was walked
        self._pass: dict[Key, Line] = {}  # how far the pass has come
        self._jobs: dict[tuple[str, Key], deque[Standing]] = {}  # by special tenant, or EVERY
        self._ended: dict[tuple[str, Key], deque[Standing]] = {}
        self._ids: set[UUID] = set()
        self._counting: Counter[str] = Counter()  # of the pass that goes on
        self.due: dict[str, int] = {}  # what each tenant had due at the last pass
        self.passes = 0
        self.is_at_end = False  # of every line, or as far as it has to
        self._lines_at = self._tail_at = self._pass_at = self._ended_at = 0.0

    def look_again(self) -> None:
        """Let the next look read everything, however soon it comes."""
        self._lines_at = self._tail_at = self._pass_at = self._ended_at = 0.0

    def set_special(self, tenants: frozenset[str]) -> None:
        """Remember the jobs of these tenants apart from those of all others."""
        if tenants == self._special:
            return
        self._special = tenants
        self._ids.clear()
        for known in (self._jobs, self._ended):
            jobs = [job for line in known.values() for job in line]
            known.clear()
            self._sort_in(known, jobs)

    def count_due(self, tenant_id: str) -> int:
        """Return how many jobs of a tenant are due, as far as passes have counted them."""
        return max(self.due.get(tenant_id, 0), self._counting[tenant_id])

    def others(self) -> Counter[str]:
        """Return how many known jobs each tenant has that is not special."""
        lines = (*self._jobs.items(), *self._ended.items())
        return Counter(
            job.tenant_id for (whose, _), line in lines if whose == EVERY for job in line
        )

    def count_known(self, tenants: Collection[str]) -> Counter[str]:
        """Return how many jobs of these special tenants are known."""
        known: Counter[str] = Counter()
        for (whose, _), line in (*self._jobs.items(), *self._ended.items()):
            if whose in tenants:
                known[whose] += len(line)
        return known

    @property
    def known(self) -> int:
        """How many jobs are known."""
        return len(self._ids) + sum(map(len, self._ended.values()))

    def pairs(self) -> set[tuple[str, str]]:
        """Return the tenants and providers that jobs are known of; EVERY stands for others."""
        lines = (*self._jobs.items(), *self._ended.items())
        return {(whose, key[0]) for (whose, key), line in lines if line}

    def draw(
        self, tenants: Iterable[str], count: int, providers: Collection[str], rooms: Rooms
    ) -> list[Standing]:
        """Take known jobs of these tenants out, in the order of the claim, where there is room."""
        wanted, heap = set(tenants), []
        for known in (self._jobs, self._ended):
            for (whose, key), line in known.items():
                if line and whose in wanted and key[0] in providers:
                    heap.append((-key[1], line[0], whose, line))
        heapify(heap)
        drawn: list[Standing] = []
        while heap and len(drawn) < count:
            rank, job, whose, line = heappop(heap)
            if not rooms.has_room(job.tenant_id, job.provider_slug):
                continue  # nor has what comes after it in its line
            rooms.take(job.tenant_id, job.provider_slug)
            drawn.append(line.popleft())
            self._ids.discard(job.id)
            if line:
                heappush(heap, (rank, line[0], whose, line))
        return drawn

    def put_back(self, jobs: Sequence[Standing]) -> None:
        """Put drawn jobs back to where they were."""
        for job in reversed(jobs):
            self._line(self._jobs, job).appendleft(job)
            self._ids.add(job.id)

    def first(self, tenants: Iterable[str], count: int) -> list[Standing]:
        """Return the first known jobs of each line of these tenants."""
        wanted = set(tenants)
        lines = (*self._jobs.items(), *self._ended.items())
        return [
            line[place]
            for (whose, _), line in lines
            if whose in wanted
            for place in range(min(count, len(line)))
        ]

    def drop(self, gone: Collection[UUID], count: int) -> None:
        """Forget jobs that are gone, among the first ones of each line."""
        for line in (*self._jobs.values(), *self._ended.values()):
            first = [line.popleft() for _ in range(min(count, len(line)))]
            line.extendleft(job for job in reversed(first) if job.id not in gone)
        self._ids.difference_update(gone)

    async def look(self, session: SessionLease) -> None:
        """Walk on, for a moment at most."""
        began = monotonic()
        if began >= self._lines_at:
            await self._find_lines(session)
            self._lines_at = began + LINES_EVERY_SECONDS
        if began >= self._tail_at:
            await self._walk_on(session, began + LOOK_SECONDS)
            self._tail_at = monotonic() + (TAIL_EVERY_SECONDS if self.is_at_end else 0)
        if monotonic() >= self._pass_at:
            await self._walk_past(session, monotonic() + LOOK_SECONDS)
        if monotonic() >= self._ended_at:
            await self._find_ended(session)

    async def _find_lines(self, session: SessionLease) -> None:
        for _ in range(MOST_NEW_LINES):
            async with session() as tx:
                found = await walks.find_lines(tx, find_gaps(self._providers, self._ends))
            for key in found:
                self._ends[key] = Line(*key, self._since, FIRST_ID)
                self._pass.setdefault(key, Line(*key, BEFORE_ALL, FIRST_ID))
            if not found:
                return

    async def _walk_on(self, session: SessionLease, until: float) -> None:
        """Walk from the end of what is known, unless enough is known."""
        left = {key: end for key, end in self._ends.items() if not self._knows_enough(key)}
        while left and monotonic() < until:
            going_on = await self._walk_chunk(session, left)
            left = {key: end for key, end in going_on.items() if not self._knows_enough(key)}
        self.is_at_end = not left

    async def _walk_past(self, session: SessionLease, until: float) -> None:
        """Go on with the pass from the very start; at its end, note what each tenant has due."""
        began = monotonic()
        left = {key: at for key, at in self._pass.items() if not self._knows_enough(key)}
        while left and monotonic() < until:
            going_on = await self._walk_chunk(session, left, counting=self._counting)
            for key in left:
                del self._pass[key]
            self._pass.update(going_on)
            left = {key: at for key, at in going_on.items() if not self._knows_enough(key)}
        ended = monotonic()
        if self.passes or self._since == BEFORE_ALL:  # else the first one does not rest
            self._pass_at = ended + (ended - began) / SHARE_OF_PASSES
        if not self._pass:
            self.due, self._counting = dict(self._counting), Counter()
            self.passes += 1
            self._pass = {key: Line(*key, BEFORE_ALL, FIRST_ID) for key in self._ends}
            self._pass_at = max(self._pass_at, ended + PASS_EVERY_SECONDS)

    def _knows_enough(self, key: Key) -> bool:
        return len(self._jobs.get((EVERY, key), ())) >= MOST_OTHERS

    async def _walk_chunk(
        self,
        session: SessionLease,
        lines: dict[Key, Line],
        *,
        counting: Counter[str] | None = None,
    ) -> dict[Key, Line]:
        """Walk a chunk of each line; return the lines that go on, and where."""
        limit = max(100, CHUNK // len(lines))
        known = Counter(
            {whose: len(line) for (whose, _), line in self._jobs.items() if whose != EVERY}
        )
        async with session() as tx:
            stretches = await walks.walk(
                tx,
                list(lines.values()),
                now=self._clock.instant(),
                limit=limit,
                only_count=[tenant for tenant, count in known.items() if count >= MOST_SPECIAL],
            )
        self._sort_in(self._jobs, _jobs_of(stretches))
        if counting is not None:
            for stretch in stretches:
                counting[stretch.tenant_id] += stretch.count
        return self._note_ends(stretches, limit, is_pass=counting is not None)

    def _note_ends(
        self, stretches: Sequence[Stretch], limit: int, *, is_pass: bool
    ) -> dict[Key, Line]:
        """Remember how far the lines were walked; return those that go on."""
        ends, counts = dict[Key, Line](), Counter[Key]()
        for stretch in stretches:
            end = stretch.end
            key = end.provider_slug, end.priority
            counts[key] += stretch.count
            ends[key] = max(
                ends.get(key, end), end, key=lambda one: (one.begins_at, one.begins_with)
            )
        going_on = {key: end for key, end in ends.items() if counts[key] >= limit}
        if not is_pass:
            latest = stretches[0].walked_at - STAMPED_BEFORE if stretches else BEFORE_ALL
            for key, end in ends.items():
                if key not in going_on and end.begins_at > latest:
                    end = replace(end, begins_at=latest, begins_with=FIRST_ID)
                self._ends[key] = end
        return going_on

    async def _find_ended(self, session: SessionLease) -> None:
        """Look for jobs whose backoff has ended; looks take a tenth of the time at most."""
        began = monotonic()
        async with session() as tx:
            found = await walks.ended(
                tx,
                self._providers,
                now=self._clock.instant(),
                limit=MOST_ENDED,
                read=max(1, MOST_ENDED_READ // len(self._providers)),
            )
        self._ended.clear()
        for job in found:
            self._line(self._ended, job).append(job)
        ended = monotonic()
        self._ended_at = ended + max(0.1, (ended - began) / SHARE_OF_PASSES)

    def _sort_in(
        self, known: dict[tuple[str, Key], deque[Standing]], jobs: Iterable[Standing]
    ) -> None:
        """Add jobs that are not known yet, each in its place."""
        added: dict[int, deque[Standing]] = {}
        for job in jobs:
            if known is self._jobs:
                if job.id in self._ids:
                    continue
                self._ids.add(job.id)
            line = self._line(known, job)
            if line and job < line[-1]:
                added[id(line)] = line
            line.append(job)
        for line in added.values():
            in_order = sorted(line)
            line.clear()
            line.extend(in_order)

    def _line(
        self, known: dict[tuple[str, Key], deque[Standing]], job: Standing
    ) -> deque[Standing]:
        whose = job.tenant_id if job.tenant_id in self._special else EVERY
        return known.setdefault((whose, (job.provider_slug, job.priority)), deque())


def _jobs_of(stretches: Iterable[Stretch]) -> Iterator[Standing]:
    for stretch in stretches:
        yield from stretch.jobs
