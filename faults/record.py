"""What happened in a run: injections, measurements, and what went wrong."""

import time
from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Injection:
    kind: str
    family: str
    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class Sample:
    """The database at one moment; empty if it could not be queried."""

    at: float
    signals: int | None = None


@dataclass(slots=True)
class Record:
    """Times are seconds since the run began."""

    began: float = field(default_factory=time.monotonic)
    injections: list[Injection] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    recoveries: list[float] = field(default_factory=list)
    returns: list[float] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)
    left_running: int = 0
    overlaps: Counter[str] = field(default_factory=Counter)  # by what allowed them
    torn: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    deadlocks: int = 0
    longest_stall: float = 0.0

    def now(self) -> float:
        return time.monotonic() - self.began

    def by_kind(self) -> Counter[str]:
        return Counter(injection.kind for injection in self.injections)

    def complain(self, what: str) -> None:
        """Record something that must not happen."""
        self.complaints.append(f"{self.now():6.1f} s  {what}")
