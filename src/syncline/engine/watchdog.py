"""Measure from a thread how long the event loop is blocked, and by whom.

While something blocks the loop, no lease is renewed and no request is answered. The watchdog pings
the loop a few times a second, which costs nothing next to a run.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from syncline.clock import monotonic, processor_time
from syncline.telemetry.engine import Telemetry

ASK_EVERY_SECONDS = 0.05
LONG_HOLD_SECONDS = 0.25
WINDOW_SECONDS = 60.0  # the metric shows the longest hold of this window and the one before
LOG_EVERY_SECONDS = 60.0  # for each provider


class Holder(NamedTuple):
    """Whose code blocked the loop: the provider of a run, and the coroutine."""

    provider_slug: str
    coroutine: str


NO_HOLDER = Holder("", "")
FindProvider = Callable[["asyncio.Task[Any] | None"], str]
"""Returns the provider that a task runs, or an empty text."""


@dataclass(slots=True, eq=False)
class _Ping:
    """One ping of the loop."""

    asked: float = field(default_factory=monotonic)
    processor_time: float = field(default_factory=processor_time)
    answered: threading.Event = field(default_factory=threading.Event)
    holder: Holder = NO_HOLDER


class Watchdog:
    """Measures how long the running loop is blocked."""

    def __init__(self, find_provider: FindProvider, telemetry: Telemetry) -> None:
        self._find_provider = find_provider
        self._telemetry = telemetry
        self._stop = threading.Event()
        self._window_began = monotonic()
        self._longest = self._longest_before = 0.0
        self._logged: dict[str, float] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the running loop for the length of the block."""
        loop = asyncio.get_running_loop()
        thread = threading.Thread(
            target=self._watch, args=(loop,), daemon=True, name="syncline-watchdog"
        )
        thread.start()
        try:
            yield
        finally:
            self._stop.set()

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        while not self._stop.wait(ASK_EVERY_SECONDS):
            ping = _Ping()
            try:
                loop.call_soon_threadsafe(self._answer, ping)
            except RuntimeError:
                return  # the loop has closed
            if not ping.answered.wait(LONG_HOLD_SECONDS):
                ping.holder = self._find_holder(loop)
            while not ping.answered.wait(1) and not self._stop.is_set():
                pass

    def _find_holder(self, loop: asyncio.AbstractEventLoop) -> Holder:
        """Return whose code blocks the loop. Its state cannot change while it is blocked."""
        with suppress(RuntimeError):  # it has resumed meanwhile
            task = asyncio.current_task(loop)
            coroutine = getattr(task.get_coro(), "__qualname__", "") if task else ""
            return Holder(self._find_provider(task), coroutine)
        return NO_HOLDER

    def _answer(self, ping: _Ping) -> None:
        """Measure the delay; this runs on the loop."""
        now = monotonic()
        seconds = now - ping.asked
        ping.answered.set()
        if now - self._window_began >= WINDOW_SECONDS:
            self._window_began, self._longest_before, self._longest = now, self._longest, 0.0
        self._longest = max(self._longest, seconds)
        self._telemetry.event_loop_measured(max(self._longest, self._longest_before))
        if seconds >= LONG_HOLD_SECONDS:
            used = processor_time() - ping.processor_time
            self._record(ping.holder, seconds, used, now)

    def _record(self, holder: Holder, seconds: float, used: float, now: float) -> None:
        last = self._logged.get(holder.provider_slug)
        is_logged = last is None or now - last >= LOG_EVERY_SECONDS
        if is_logged:
            self._logged[holder.provider_slug] = now
        self._telemetry.event_loop_held(
            holder.provider_slug,
            holder.coroutine,
            seconds=seconds,
            processor_seconds=used,
            is_logged=is_logged,
        )
