"""Slots: how many runs this process may have at once, of which providers."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from syncline.clock import monotonic
from syncline.policy.concurrency import (
    FLOOR,
    MOST_THREADS,
    PROGRAMS_PER_CORE,
    Load,
    next_limit,
)

if TYPE_CHECKING:
    from syncline.engine.worker.attempt import Caller

USUAL_RUNS = 100  # the mean of a run's time and bytes is that of about so many, at least


class Slots:
    """Room for the runs of some providers: so many at once."""

    def __init__(self, providers: Sequence[str], limit: int) -> None:
        self.providers = providers
        self.limit = limit
        self.taken = 0
        self.lent = 0  # by streams that wait for another transaction's lock
        self.asked = 0.0  # when jobs were last claimed
        self.is_more_due = False  # the last claim returned as many jobs as it asked for
        self.is_changed = False  # a run ended or was settled since

    def begin_claim(self) -> None:
        """Record that jobs are being claimed for these slots."""
        self.asked, self.is_changed = monotonic(), False

    def end_claim(self, *, is_full: bool, seconds: float) -> None:  # noqa: ARG002
        """Record a claim, and decide the limit."""
        self.is_more_due = is_full

    def record_run(self, seconds: float, page_bytes: int) -> None:
        """Record a run that has ended."""

    def record_settled(self, seconds: float) -> None:
        """Record how long a run waited until it was settled."""

    def record_turn(self, began: float) -> None:
        """Record how long the event loop took for one turn."""


@dataclass(slots=True)
class _Seen:
    """What has been seen since the last decision."""

    since: float
    ended: int = 0
    run_seconds: float = 0  # of all of them
    page_bytes: int = 0
    loop_seconds: float = 0
    database_seconds: float = 0


class GrowingSlots(Slots):
    """Slots whose number follows the load; `policy/concurrency.py` decides."""

    def __init__(self, providers: Sequence[str], max_run_seconds: float) -> None:
        super().__init__(providers, FLOOR)
        self._max_run_seconds = max_run_seconds
        self._exact_limit = float(FLOOR)
        self._seen = _Seen(monotonic())
        self._run_seconds = self._run_bytes = 0.0  # of a usual run
        self._cut = self._had_more = monotonic()

    def record_run(self, seconds: float, page_bytes: int) -> None:
        seen = self._seen
        seen.ended += 1
        seen.run_seconds += seconds
        seen.page_bytes += page_bytes

    def record_settled(self, seconds: float) -> None:
        self._seen.database_seconds = max(self._seen.database_seconds, seconds)

    def record_turn(self, began: float) -> None:
        self._seen.loop_seconds = max(self._seen.loop_seconds, monotonic() - began)

    def end_claim(self, *, is_full: bool, seconds: float) -> None:
        now, seen = monotonic(), self._seen
        had_more, self.is_more_due = self.is_more_due, is_full
        if is_full:
            self._had_more = now
        self._update_means(seen)
        load = Load(
            taken=self.taken,
            ended=seen.ended,
            is_more_due=is_full,
            seconds=now - seen.since if had_more else 0,
            loop_seconds=seen.loop_seconds,
            database_seconds=max(seen.database_seconds, seconds),
            run_share=self._run_seconds / self._max_run_seconds,
            run_bytes=self._run_bytes,
            seconds_since_cut=now - self._cut,
            seconds_since_more=now - self._had_more,
        )
        decided = next_limit(self._exact_limit, load)
        if decided < self._exact_limit:
            self._cut = self._had_more = now
        self._exact_limit, self.limit = decided, int(decided)
        self._seen = _Seen(now)

    def _update_means(self, seen: _Seen) -> None:
        """Count the runs that have ended into the usual run, which is that of the last round."""
        if seen.ended:
            share = min(seen.ended / max(self.taken, USUAL_RUNS), 1)
            self._run_seconds += share * (seen.run_seconds / seen.ended - self._run_seconds)
            self._run_bytes += share * (seen.page_bytes / seen.ended - self._run_bytes)


def make_slots(
    callers: "Mapping[str, Caller]",
    concurrency: int | Literal["auto"],
    max_run_seconds: float,
) -> list[Slots]:
    """Return the slots of a worker: one kind with a fixed number, or up to three that suit it.

    A blocking connector needs a thread, and some start a program. Each kind has its own slots, so
    that no job is claimed before it can start, and none waits for the others.
    """
    if concurrency != "auto":
        return [Slots(list(callers), concurrency)] if callers else []
    programs = [slug for slug, one in callers.items() if one.runs_programs]
    threads = [slug for slug, one in callers.items() if one.is_blocking and slug not in programs]
    others = [slug for slug in callers if slug not in {*programs, *threads}]
    kinds = (
        GrowingSlots(others, max_run_seconds),
        Slots(threads, MOST_THREADS),
        Slots(programs, PROGRAMS_PER_CORE * count_cores()),
    )
    return [slots for slots in kinds if slots.providers]


def count_cores() -> int:
    """Return how many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        return os.cpu_count() or 1
