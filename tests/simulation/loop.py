"""An event loop whose time is virtual, and in which whole processes can be frozen or killed.

Nothing happens by itself: whenever no callback is ready, the network is asked to let one thing
happen, chosen by the seed; only when there is nothing either, time moves on to the next timer.
"""

import asyncio
import selectors
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from datetime import timedelta
from typing import Any, Protocol

from syncline.testing import ManualClock

PROCESS: ContextVar["Process | None"] = ContextVar("process", default=None)
CONNECTOR_THREAD, WATCHDOG_THREAD = "syncline-connector", "syncline-watchdog"
THREADS_OF_OUR_OWN = 2  # this one, and the observer's
REAL_PAUSE_SECONDS = 0.002
Events = list[tuple[selectors.SelectorKey, int]]


class Process:
    """What runs inside one simulated process: every callback of it passes through here."""

    def __init__(self, name: str, *, is_mortal: bool = True) -> None:
        self.name = name
        self.is_mortal = is_mortal
        self.is_frozen = False
        self.is_dead = False
        self.frozen_until = 0.0  # when it last came back
        self._held: list[_Callback] = []

    def freeze(self) -> None:
        self.is_frozen = True

    def thaw(self, loop: "SimulatedLoop") -> None:
        """Go on where it was stopped, with everything that has come due in the meantime."""
        self.is_frozen = False
        self.frozen_until = loop.time()
        held, self._held = self._held, []
        for callback in held:
            loop.perform_soon(self, callback)

    def perform(self, callback: "_Callback") -> None:
        if self.is_frozen:
            self._held.append(callback)
        elif not callback.is_cancelled:
            callback.function(*callback.arguments)
            _let_connector_threads_end()


class _Callback:
    """A function to be called, unless its handle is cancelled before."""

    def __init__(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], context: Context
    ) -> None:
        self.function = function
        self.arguments = arguments
        self.context = context
        self.handle: asyncio.Handle | None = None

    @property
    def is_cancelled(self) -> bool:
        return self.handle is not None and self.handle.cancelled()


class Network(Protocol):
    def proceed(self) -> bool: ...

    def is_waiting(self) -> bool: ...

    def next_arrival(self) -> float: ...

    async def connect(
        self, loop: "SimulatedLoop", protocol_factory: Callable[[], Any], path: str
    ) -> tuple[Any, Any]: ...


class Stuck(Exception):
    """Nothing can ever happen again."""


class SimulatedLoop(asyncio.SelectorEventLoop):
    """`linger` says how much later than the next timer time goes on, so that timers meet."""

    def __init__(
        self, clock: ManualClock, network: Network, linger: Callable[[], float] = lambda: 0
    ) -> None:
        self._start = clock()
        self._linger = linger
        self._clock = clock
        self._elapsed = 0.0
        self.network = network
        super().__init__(_Selector(self._when_idle))

    def time(self) -> float:
        return self._elapsed

    def call_soon(
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        context = context or copy_context()
        process = context.get(PROCESS)
        if process is None:
            return super().call_soon(callback, *args, context=context)
        wrapped = _Callback(callback, args, context)
        wrapped.handle = super().call_soon(process.perform, wrapped, context=context)
        return wrapped.handle

    def call_soon_threadsafe(
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        if threading.current_thread().name == WATCHDOG_THREAD:
            raise RuntimeError("nobody holds a loop whose time is virtual")  # which ends the thread
        context = context or copy_context()
        process = context.get(PROCESS)
        if process is None:
            return super().call_soon_threadsafe(callback, *args, context=context)
        wrapped = _Callback(callback, args, context)
        return super().call_soon_threadsafe(process.perform, wrapped, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[..., Any],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        context = context or copy_context()
        process = context.get(PROCESS)
        if process is None:
            return super().call_at(when, callback, *args, context=context)
        wrapped = _Callback(callback, args, context)
        handle = super().call_at(when, process.perform, wrapped, context=context)
        wrapped.handle = handle
        return handle

    def perform_soon(self, process: Process, callback: _Callback) -> None:
        """Perform what a frozen process held back, if it is still wanted then."""
        super().call_soon(process.perform, callback, context=callback.context)

    async def create_unix_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], path: str
    ) -> tuple[Any, Any]:
        return await self.network.connect(self, protocol_factory, path)

    async def connect_for_real(
        self, protocol_factory: Callable[[], Any], path: str
    ) -> tuple[Any, Any]:
        return await super().create_unix_connection(protocol_factory, path)

    @contextmanager
    def deciding_time(self) -> Iterator[None]:
        """Let this process' monotonic clock follow the virtual time."""
        real, time.monotonic = time.monotonic, self.time
        try:
            yield
        finally:
            time.monotonic = real

    def _when_idle(self, poll: Callable[[float], Events], timeout: float | None) -> Events:
        """Let one thing happen."""
        if self.network.is_waiting():
            return poll(REAL_PAUSE_SECONDS)
        if not self.network.proceed():
            if timeout is None:
                raise Stuck("nobody has anything to do, now or later")
            # Timers may be late, but not what arrives over a slow line.
            arrives_in = self.network.next_arrival() - self._elapsed
            self._elapsed += max(timeout, min(timeout + self._linger(), arrives_in))
            self._clock.set(self._start + timedelta(seconds=self._elapsed))
        return []


class _Selector(selectors.DefaultSelector):
    """Hears nothing from outside while callbacks are ready; whoever is asked decides the rest."""

    def __init__(self, when_idle: Callable[[Callable[[float], Events], float | None], Events]):
        super().__init__()
        self._decide = when_idle

    def select(self, timeout: float | None = None) -> Events:
        if timeout is not None and timeout <= 0:
            return []
        return self._decide(super().select, timeout)


def _let_connector_threads_end() -> None:
    """Wait for the threads that were just started, so that they answer one after the other."""
    if threading.active_count() > THREADS_OF_OUR_OWN:
        for thread in threading.enumerate():
            if thread.name == CONNECTOR_THREAD:
                thread.join()
