"""What a process has of one budget: the calls in its hand, and what it knows of the rest."""

from collections import deque
from dataclasses import dataclass
from datetime import datetime

from syncline.http.gate import PATIENCE_SECONDS

BLOCK_SECONDS = 0.5  # of recent use, that a process takes at once
IDLE_SECONDS = 5.0
LONGEST_DEFERRAL = 3600.0


@dataclass(frozen=True, slots=True)
class CallLimit:
    """A budget as calls need it: how fast calls flow in, and how long after it one may be made."""

    scope: str
    calls: int
    members: str  # who shares a bucket: "all", or each "tenant" or "connection" for itself
    capacity: float
    rate: float
    hold_seconds: float
    per_seconds: float = 3600.0
    is_reported: bool = False


@dataclass(slots=True)
class Block:
    """Calls that were taken together."""

    left: int
    lapses_at: float
    taken_at: datetime  # by the engine's clock


class Share:
    """What this process has of one bucket, and what it knows about it."""

    __slots__ = (
        "blocks", "booked_at", "last_block", "left", "left_until", "level", "limit", "member",
        "said", "seen_at", "spent", "unused", "unused_since", "use_rate", "used", "used_since",
        "waiting",
    )  # fmt: skip

    def __init__(self, limit: CallLimit, member: str, now: float) -> None:
        self.limit = limit
        self.member = member
        self.blocks: deque[Block] = deque()
        self.last_block = 0
        self.waiting = 0  # calls that cannot be made yet
        self.spent = 0  # calls that were made and not yet taken
        self.unused = 0  # calls that were taken and lapsed
        self.unused_since: datetime | None = None
        self.said: tuple[float, float] | None = None  # calls that the provider has left, seconds
        self.level = 0.0  # of the bucket, when it was last seen
        self.left: float | None = None  # that the provider has, until then
        self.left_until = 0.0
        self.seen_at: float | None = None
        self.booked_at = 0.0  # until then, deferred runs come back for what flows in
        self.used, self.used_since = 0, now
        self.use_rate = 0.0

    def in_hand(self, now: float) -> int:
        """Return how many calls may be made at once, after letting old ones lapse."""
        while self.blocks and self.blocks[0].lapses_at <= now:
            self._lapse(self.blocks.popleft())
        return sum(block.left for block in self.blocks)

    def _lapse(self, block: Block) -> None:
        if block.left:
            self.unused += block.left
            since = self.unused_since
            self.unused_since = block.taken_at if since is None else min(since, block.taken_at)

    def use(self, count: int) -> None:
        self.used += count
        for block in self.blocks:
            part = min(count, block.left)
            block.left -= part
            count -= part

    def take_back(self, count: int) -> None:
        """Let calls of the newest block lapse at once, because nobody needs them."""
        if self.blocks:
            block = self.blocks[-1]
            part = min(count, block.left)
            block.left -= part
            self._lapse(Block(part, 0.0, block.taken_at))

    def room(self, now: float) -> float:
        """Return about how many calls there are in the bucket."""
        if self.seen_at is None:
            return self.limit.capacity
        flowed = self.level + (now - self.seen_at) * self.limit.rate
        level = min(self.limit.capacity, flowed)
        return level if self.left is None or now >= self.left_until else min(level, self.left)

    def seconds_until(self, calls: float, now: float) -> float:
        """Return about how long it takes until so many calls are in the bucket."""
        return self.seconds_for(min(calls, self.limit.capacity), now)

    def seconds_for(self, calls: float, now: float) -> float:
        """Return about how long it takes to make so many calls, each as soon as it flows in."""
        wait = max(0.0, calls - self.room(now)) / self.limit.rate
        if self.left is not None and self.left < calls and now < self.left_until:
            wait = max(wait, self.left_until - now)
        return wait

    def book(self, calls: float, now: float, roll: float) -> float:
        """Return in how many seconds a deferred run is to come back, each a little later."""
        calls = max(1.0, min(calls, self.limit.capacity))
        first = max(self.booked_at, now + self.seconds_until(calls, now))
        self.booked_at = first + calls / self.limit.rate
        seconds = first - now + roll * calls / self.limit.rate
        return min(max(seconds, PATIENCE_SECONDS / 2 * (1 + roll)), LONGEST_DEFERRAL)

    def note_use(self, now: float) -> None:
        """Count what was used lately into the usual use."""
        seconds = now - self.used_since
        if seconds >= BLOCK_SECONDS / 2:
            self.use_rate = (self.use_rate + self.used / seconds) / 2
            self.used, self.used_since = 0, now

    def is_idle(self, now: float) -> bool:
        is_quiet = not (self.waiting or self.spent or self.unused or self.said or self.blocks)
        return is_quiet and now - max(self.used_since, self.seen_at or 0.0) > IDLE_SECONDS
