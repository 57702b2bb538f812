"""The network between simulated processes and a real server: one call at a time, as the seed says.

Whatever a session sends is held back until it is its turn; whatever the server answers is held
back until the answer is whole. So a call is one step of the world, and between any two steps a
session can be cut or a process can die, before the server heard of the call or after.
"""

import asyncio
import hashlib
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context, copy_context
from typing import Any, Protocol

from simulation.bandwidth import Line, Speed
from simulation.link import Fate, Link
from simulation.loop import PROCESS, Process, SimulatedLoop
from simulation.observer import Observer
from simulation.wire import Request

TRACE_LINES = 400
MOST_CALLS = 100_000
POLLS_UNASKED = 2  # looks at an unanswered call before the server is asked what holds it up


class Livelock(Exception):
    """The world makes calls without end."""


class Chance(Protocol):
    def choose(self, count: int) -> int: ...

    def fate_of(self, link: Link, request: Request) -> Fate: ...


class SimulatedNetwork:
    """Every session of the simulated processes, and whose turn it is."""

    def __init__(self, observer: Observer, chance: Chance, on_commit: Callable[[], None]) -> None:
        self._observer = observer
        self._chance = chance
        self._on_commit = on_commit
        self.on_death: Callable[[Process], None] = lambda _: None
        self.is_down = False
        self.is_over = False
        self.refuses_logins = False
        self.is_read_only = False  # to sessions that begin now, for as long as they last
        self._speeds: dict[Process, Speed] = {}
        self._speed_of_all: Speed | None = None
        self._lines: dict[Process, Line] = {}
        self.links: list[Link] = []
        self._turns: list[Link] = []  # sessions that have something to send
        self._in_flight: Link | None = None
        self._polls = 0
        self._blocked: list[Link] = []  # calls that wait for a lock on the server, as they came
        self._locks_were_freed = False  # perhaps, since the last look at those that wait
        self._answered: list[Link] = []
        self.calls = 0
        self.faults: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.trace: deque[str] = deque(maxlen=TRACE_LINES)
        self._digest = hashlib.sha256()
        self._outside = copy_context()

    @property
    def digest(self) -> str:
        """What happened, in a few letters: the same seed gives the same ones."""
        return self._digest.hexdigest()[:16]

    def is_waiting(self) -> bool:
        """Return whether the server works on a call; one that waits for a lock is put aside."""
        if self._in_flight is None:
            return self._is_deadlocked()
        self._polls += 1
        if self._polls > POLLS_UNASKED and self._waits_for_lock(self._in_flight):
            self._put_aside(self._in_flight)
            self._in_flight = None
        return True  # whoever was put aside has a timer, which the loop has yet to see

    def next_arrival(self) -> float:
        """Return when something arrives over a slow line, by the loop's time."""
        return min((line.next_arrival for line in self._lines.values()), default=float("inf"))

    def proceed(self) -> bool:
        """Let one thing happen: an answer arrives, a lock is had, or a call is sent."""
        if self._answered:
            self._take_answer(self._answered.pop(0))
        elif self._blocked and self._resume_unblocked():
            pass
        elif self._turns:
            self._send(self._turns.pop(self._chance.choose(len(self._turns))))
        else:
            return False
        return True

    async def connect(
        self, loop: SimulatedLoop, protocol_factory: Callable[[], Any], path: str
    ) -> tuple[Any, Any]:
        process = PROCESS.get()
        assert process is not None, "only simulated processes use the simulated network"
        if self.is_over or (self.is_down and process.is_mortal):
            raise ConnectionRefusedError("the server is away")
        self._give_line(process, loop)
        link = Link(self, loop, process, protocol_factory())
        # The wire belongs to nobody: it works on while a process is frozen.
        await loop.create_task(
            loop.connect_for_real(lambda: link.ear, path), context=self._outside.copy()
        )
        return link, link.protocol

    def freeze(self, process: Process) -> None:
        self.note("freeze", process.name)
        process.freeze()

    def kill(self, process: Process, why: str = "kill in passing") -> None:
        """End a process where it stands: nothing is released, nobody is told."""
        self.note(why, process.name)
        process.is_dead = True
        process.freeze()
        for link in self.links_of(process):
            link.cut()
        self.on_death(process)

    def cut(self, link: Link, why: str) -> None:
        self.note(why, link.name)
        link.cut()

    def go_down(self) -> None:
        self.note("outage", "server")
        self.is_down = True
        self._cut_workers()

    def _cut_workers(self) -> None:
        for link in [link for link in self.links if link.process.is_mortal]:
            link.cut()

    @contextmanager
    def refusing_logins(self) -> Iterator[None]:
        """Cut every session, and let nobody begin another."""
        self.note("refused logins", "server")
        self.refuses_logins = True
        self._cut_workers()
        try:
            yield
        finally:
            self.refuses_logins = False

    @contextmanager
    def read_only(self) -> Iterator[None]:
        """Be a standby for a while; a session that begins then never writes, while it lasts."""
        self.note("read-only", "server")
        self.is_read_only = True
        self._cut_workers()
        try:
            yield
        finally:
            self.is_read_only = False

    def slow_down(self, process: Process, speed: Speed, seconds: float) -> None:
        """Let everything between a process and the server take its time for a while."""
        self.note("slow line", f"{process.name}, {speed}")
        self._speeds[process] = speed
        self._end_line(process)
        asyncio.get_running_loop().call_later(
            seconds, self._speed_up, process, speed, context=Context()
        )

    def _speed_up(self, process: Process, speed: Speed) -> None:
        if self._speeds.get(process) is speed:
            del self._speeds[process]
            self._end_line(process)

    def set_speed_of_all(self, speed: Speed | None) -> None:
        """Give every process the same line, slow or not."""
        self._speed_of_all = speed
        self._speeds.clear()
        for process in list(self._lines):
            self._end_line(process)
        for link in self.links:
            self._give_line(link.process, link.loop)

    def links_of(self, process: Process) -> list[Link]:
        return [link for link in self.links if link.process is process]

    def end(self) -> None:
        """Close every session, and let nobody open another."""
        self.is_down = self.is_over = True
        for link in list(self.links):
            link.cut()

    def has_sent(self, link: Link, size: int) -> None:
        if line := self._lines.get(link.process):
            line.carry((link, "call"), size, lambda: self._take_turn(link))
        else:
            self._take_turn(link)

    def _take_turn(self, link: Link) -> None:
        if link not in self._turns:
            self._turns.append(link)

    def _give_line(self, process: Process, loop: SimulatedLoop) -> None:
        """Put a slow line between a process and the server, where it has none and needs one."""
        speed = self._speeds.get(process) or (self._speed_of_all if process.is_mortal else None)
        if speed is not None and process not in self._lines:
            self._lines[process] = Line(loop, speed)

    def _end_line(self, process: Process) -> None:
        if line := self._lines.pop(process, None):
            line.end()
        for link in self.links_of(process):
            self._give_line(process, link.loop)

    def has_answered(self, link: Link) -> None:
        # A call that waited for a lock is taken up in its turn, however early its answer came.
        if self._in_flight is link:
            self._in_flight = None
            self._answered.append(link)

    def forget(self, link: Link) -> None:
        """Leave nothing of a session that has ended; its transaction, too, is gone."""
        if line := self._lines.get(link.process):
            line.drop((link, "call"), (link, "answer"))
        self._locks_were_freed = True
        for waiting in (self.links, self._turns, self._blocked, self._answered):
            if link in waiting:
                waiting.remove(link)
        if self._in_flight is link:
            self._in_flight = None
        if link.request.cancels is not None:
            self._observer.wait_until_free(link.request.cancels)
        if link.pid is not None:
            self._observer.end_session(link.pid)

    def _send(self, link: Link) -> None:
        self.calls += 1
        if self.calls > MOST_CALLS:
            raise Livelock(f"more than {MOST_CALLS} calls")
        request = link.next_request()
        fate = self._chance.fate_of(link, request)
        if fate is Fate.KILL_BEFORE:
            self.kill(link.process, f"kill before {request.kind}")
        elif fate is Fate.CUT_BEFORE:
            self.cut(link, f"cut before {request.kind}")
        elif self.refuses_logins and request.label == "connect" and link.process.is_mortal:
            self._tell(f"{link.name} is not let in")
            link.refuse("28000", "nobody may log in just now")
        else:
            self._in_flight, self._polls = link, 0
            is_read_only = self.is_read_only and link.process.is_mortal
            if not request.ends_with:  # the server closes the session, and that is all
                self._tell(f"{link.name} {request.label}")
            link.send(request, fate, self.calls, read_only=is_read_only)

    def _take_answer(self, link: Link) -> None:
        answer, request = link.answer, link.request
        has_committed = link.take_status()
        link.stop_timer()
        self._locks_were_freed = True
        self.errors.update(answer.errors)
        ended = " ".join(answer.tags + answer.errors)
        self._tell(f"{link.name} {request.label} -> {ended}")
        if has_committed:
            self._on_commit()
        if link.fate is Fate.KILL_AFTER:
            self.kill(link.process, f"kill after {request.kind}")
        elif link.fate is Fate.CUT_AFTER:
            self.cut(link, f"cut after {request.kind}")
        else:
            if link.status != "I":
                link.stand_idle(self._end_idle)
            self._answer(link)

    def _answer(self, link: Link) -> None:
        if line := self._lines.get(link.process):
            line.carry((link, "answer"), len(link.answer.data), link.deliver)
        else:
            link.deliver()

    def _end_idle(self, link: Link) -> None:
        """Do as the server does to a session that stays idle inside a transaction."""
        if link in self.links and link not in self._turns:
            self.cut(link, "idle in transaction")

    def _waits_for_lock(self, link: Link) -> bool:
        return link.pid is not None and bool(self._observer.blockers([link.pid]))

    def _put_aside(self, link: Link) -> None:
        self._blocked.append(link)
        self._blocked.sort(key=lambda one: one.sent_as)
        link.wait_for_lock(self._give_up_lock)

    def _give_up_lock(self, link: Link) -> None:
        """Do as the server does to a call that waits too long for a lock."""
        if link in self._blocked and not link.answer.is_complete and link.pid is not None:
            self._observer.cancel(link.pid)
            link.give_up_lock()
            self._locks_were_freed = True

    def _resume_unblocked(self) -> bool:
        if not (self._locks_were_freed or any(link.answer.is_complete for link in self._blocked)):
            return False
        waiting = self._observer.blockers([link.pid for link in self._blocked if link.pid])
        for link in self._blocked:
            if link.answer.is_complete or link.pid not in waiting:
                self._blocked.remove(link)
                self._in_flight, self._polls = link, 0
                if link.answer.is_complete:
                    self.has_answered(link)
                return True
        self._locks_were_freed = False
        return False

    def _is_deadlocked(self) -> bool:
        """Return whether only the server can go on.

        Locks held by whoever does not wait himself, but is frozen, or asleep, or far away, are
        freed in virtual time. Those that wait for each other are a deadlock, which the server ends
        in real time.
        """
        if not self._blocked or self._answered or self._turns:
            return False
        if any(link.answer.is_complete for link in self._blocked):
            return False
        waiting = self._observer.blockers([link.pid for link in self._blocked if link.pid])
        if len(waiting) < len(self._blocked):
            self._locks_were_freed = True
        while goes_on := [pid for pid, by in waiting.items() if waiting.keys().isdisjoint(by)]:
            for pid in goes_on:
                del waiting[pid]
        return bool(waiting)

    def note(self, fault: str, whom: str) -> None:
        self.faults[fault] += 1
        self._tell(f"{whom} !! {fault}")

    def _tell(self, line: str) -> None:
        self.trace.append(line)
        self._digest.update(line.encode())
