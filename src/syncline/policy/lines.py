"""The lines of ready jobs, one per provider and priority, as a process remembers them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any
from uuid import UUID

ABOVE_ALL, BELOW_ALL = 32768, -32769  # a priority is a smallint
BEFORE_ALL = datetime(1, 1, 1, tzinfo=UTC)  # the database refuses a job for the year 1
FIRST_ID = UUID(int=0)
UNSEEN_LOOKS = 100  # a line that was empty at this many looks in a row is forgotten
CHEAP_SECONDS = 0.001
SHARE_OF_LOOKS = 0.05
LONGEST_SECONDS = 1.0


@dataclass(slots=True)
class Line:
    """The ready jobs of one provider and priority; no job was ready before its beginning."""

    provider_slug: str
    priority: int
    begins_at: datetime
    begins_with: UUID
    unseen: int = 0


@dataclass(frozen=True, slots=True)
class LineColumns:
    """Known lines, and the gaps between and around their priorities, as a statement takes them."""

    known: Sequence[Sequence[Any]]  # providers, priorities, and the first times and ids
    gaps: Sequence[Sequence[Any]]  # providers, and the priorities below and above each gap


class Lines:
    """What a process knows about the lines of its providers.

    A claim reads the lines that are known, and looks for further ones in the gaps.
    """

    def __init__(self, providers: Sequence[str]) -> None:
        self._providers = providers
        self._lines: dict[tuple[str, int], Line] = {}
        self._gaps = self._find_gaps()

    def columns(self, *, from_start: bool) -> LineColumns:
        """Return what a claim needs; `from_start` reads each line from its very start."""
        lines = self._lines.values()
        return LineColumns(
            (
                [line.provider_slug for line in lines],
                [line.priority for line in lines],
                [BEFORE_ALL if from_start else line.begins_at for line in lines],
                [FIRST_ID if from_start else line.begins_with for line in lines],
            ),
            self._gaps,
        )

    def learn(self, found: Iterable[Line]) -> bool:
        """Remember where lines begin, and return whether there was an unknown one among them."""
        lines = {(line.provider_slug, line.priority): line for line in found}
        is_any_new = not lines.keys() <= self._lines.keys()
        for line in self._lines.values():
            line.unseen += 1
        self._lines |= lines
        if is_any_new:
            self._gaps = self._find_gaps()
        return is_any_new

    def forget_unseen(self) -> None:
        """Forget the lines that have been empty for long; what comes is found in the gaps."""
        gone = [key for key, line in self._lines.items() if line.unseen >= UNSEEN_LOOKS]
        for key in gone:
            del self._lines[key]
        if gone:
            self._gaps = self._find_gaps()

    def _find_gaps(self) -> Sequence[Sequence[Any]]:
        gaps = [
            (provider, below, above)
            for provider in self._providers
            for above, below in pairwise((ABOVE_ALL, *self._priorities(provider), BELOW_ALL))
        ]
        return list(zip(*gaps, strict=True)) or ((), (), ())

    def _priorities(self, provider: str) -> list[int]:
        """Return the known priorities of a provider, the highest first."""
        return sorted(
            (priority for slug, priority in self._lines if slug == provider), reverse=True
        )


def seconds_until_look(seconds_looked: float) -> float:
    """Return for how long claims may begin where the last look found the first jobs.

    A look from the very start walks over what was claimed since the table was last vacuumed. It is
    cheap, and then part of every claim, unless an old snapshot keeps all of that in the index.
    """
    if seconds_looked < CHEAP_SECONDS:
        return 0
    return min(seconds_looked / SHARE_OF_LOOKS, LONGEST_SECONDS)
