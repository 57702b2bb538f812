"""The lines of ready jobs, one per provider and priority, as a process remembers them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any
from uuid import UUID

ABOVE_ALL, BELOW_ALL = 32768, -32769  # a priority is a smallint
BEFORE_ALL = datetime(1, 1, 1, tzinfo=UTC)  # the database refuses a job for the year 1
FIRST_ID = UUID(int=0)
EMPTY_LOOKS = 100  # a line that was empty at this many looks in a row is forgotten
CHEAP_SECONDS = 0.001
SHARE_OF_LOOKS = 0.05
IDLE_SECONDS, BUSY_SECONDS = 1.0, 3.0  # the longest that a look from the very start is put off


@dataclass(frozen=True, slots=True)
class Line:
    """The ready jobs of one provider and priority; none was ready before its beginning."""

    provider_slug: str
    priority: int
    begins_at: datetime
    begins_with: UUID


@dataclass(frozen=True, slots=True)
class Look:
    """What a claim saw of a line, and how long it had looked until then."""

    line: Line
    is_empty: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class LineColumns:
    """Known lines, and the gaps between and around their priorities, as a claim takes them."""

    known: Sequence[Sequence[Any]]  # providers, priorities, and the first times and ids
    gaps: Sequence[Sequence[Any]]  # providers, and the priorities below and above each gap


class Lines:
    """What a process knows about the lines of its providers.

    A claim reads the known lines, and looks for further ones in the gaps between them. It reads
    them from their very start if that is cheap. While an old snapshot is held, everything that was
    claimed since stays in the index. Then most claims begin where the line began a moment ago.
    """

    def __init__(self, providers: Sequence[str]) -> None:
        self._providers = providers
        self._lines: dict[tuple[str, int], Line] = {}
        self._empty_looks: dict[tuple[str, int], int] = {}
        self._gaps = self._find_gaps()
        self._started_at = 0.0  # when lines were last read from their very start
        self._pause = 0.0  # and how long that may be ago

    def columns(self, *, from_start: bool, only: Collection[str] | None = None) -> LineColumns:
        """Return what a claim needs, to read each line from its very start or its beginning.

        With `only`, the lines of other providers are left out.
        """
        lines: Collection[Line] = self._lines.values()
        gaps = self._gaps
        if only is not None:
            lines = [line for line in lines if line.provider_slug in only]
            kept = [gap for gap in zip(*gaps, strict=True) if gap[0] in only]
            gaps = list(zip(*kept, strict=True)) or ((), (), ())
        return LineColumns(
            (
                [line.provider_slug for line in lines],
                [line.priority for line in lines],
                [BEFORE_ALL if from_start else line.begins_at for line in lines],
                [FIRST_ID if from_start else line.begins_with for line in lines],
            ),
            gaps,
        )

    def is_start_due(self, monotonic: float, *, is_idle: bool) -> bool:
        """Return whether the next claim has to read from the very start.

        A worker that is idle has the time, and what is put off may be all that there is to do.
        """
        longest = IDLE_SECONDS if is_idle else BUSY_SECONDS
        return monotonic >= self._started_at + min(self._pause, longest)

    def note_start(self, looks: Sequence[Look], monotonic: float) -> None:
        """Decide how soon to read from the very start again, after looks that did."""
        seconds = max((look.seconds for look in looks), default=0)
        self._started_at = monotonic
        if seconds < CHEAP_SECONDS:
            self._pause = 0
            self._forget_empty()  # elsewhere one is kept, or each claim would read over its past
        else:
            self._pause = seconds / SHARE_OF_LOOKS

    def learn(self, looks: Sequence[Look]) -> bool:
        """Remember where lines begin, and return whether there was an unknown one among them."""
        count = len(self._lines)
        for look in looks:
            key = look.line.provider_slug, look.line.priority
            self._lines[key] = look.line
            self._empty_looks[key] = self._empty_looks.get(key, 0) + 1 if look.is_empty else 0
        if len(self._lines) == count:
            return False
        self._gaps = self._find_gaps()
        return True

    def start_over(self) -> None:
        """Let the next claim read from the very start."""
        self._pause = 0

    def _forget_empty(self) -> None:
        """Forget the lines that have been empty for long; what comes is found in the gaps."""
        gone = [key for key, looks in self._empty_looks.items() if looks >= EMPTY_LOOKS]
        for key in gone:
            del self._lines[key], self._empty_looks[key]
        if gone:
            self._gaps = self._find_gaps()

    def _find_gaps(self) -> Sequence[Sequence[Any]]:
        return find_gaps(self._providers, self._lines)

    @property
    def known(self) -> Collection[Line]:
        """The known lines, and where each begins."""
        return self._lines.values()


def find_gaps(
    providers: Sequence[str], known: Collection[tuple[str, int]]
) -> Sequence[Sequence[Any]]:
    """Return the gaps between and around known priorities, as columns."""
    gaps = [
        (provider, below, above)
        for provider in providers
        for above, below in pairwise((ABOVE_ALL, *_priorities(provider, known), BELOW_ALL))
    ]
    return list(zip(*gaps, strict=True)) or ((), (), ())


def _priorities(provider: str, known: Collection[tuple[str, int]]) -> list[int]:
    """Return the known priorities of a provider, the highest first."""
    return sorted((priority for slug, priority in known if slug == provider), reverse=True)
