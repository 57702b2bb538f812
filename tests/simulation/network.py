"""The network between simulated processes and a real server: one call at a time, as the seed says.

Whatever a session sends is held back until it is its turn; whatever the server answers is held
back until the answer is whole. So a call is one step of the world, and between any two steps a
session can be cut or a process can die, before the server heard of the call or after.
"""

import hashlib
from collections import Counter, deque
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, Protocol

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
        self.links: list[Link] = []
        self._turns: list[Link] = []  # sessions that have something to send
        self._in_flight: Link | None = None
        self._polls = 0
        self._blocked: list[Link] = []  # calls that wait for a lock on the server
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
            self._blocked.append(self._in_flight)
            self._in_flight = None
        return self._in_flight is not None

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
        for link in [link for link in self.links if link.process.is_mortal]:
            link.cut()

    def end_idle_transactions(self, process: Process) -> None:
        """Do as the server does to a session that stays idle inside a transaction."""
        for link in self.links_of(process):
            if link.status != "I" and link not in self._turns:
                self.cut(link, "idle in transaction")

    def links_of(self, process: Process) -> list[Link]:
        return [link for link in self.links if link.process is process]

    def end(self) -> None:
        """Close every session, and let nobody open another."""
        self.is_down = self.is_over = True
        for link in list(self.links):
            link.cut()

    def has_sent(self, link: Link) -> None:
        if link not in self._turns:
            self._turns.append(link)

    def has_answered(self, link: Link) -> None:
        # A call that waited for a lock is taken up in its turn, however early its answer came.
        if self._in_flight is link:
            self._in_flight = None
            self._answered.append(link)

    def forget(self, link: Link) -> None:
        """Leave nothing of a session that has ended; its transaction, too, is gone."""
        for waiting in (self.links, self._turns, self._blocked, self._answered):
            if link in waiting:
                waiting.remove(link)
        if self._in_flight is link:
            self._in_flight = None
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
        else:
            self._in_flight, self._polls = link, 0
            link.send(request, fate)

    def _take_answer(self, link: Link) -> None:
        answer, request = link.answer, link.request
        self.errors.update(answer.errors)
        ended = " ".join(answer.tags + answer.errors)
        self._tell(f"{link.name} {request.label} -> {ended}")
        if link.take_status():
            self._on_commit()
        if link.fate is Fate.KILL_AFTER:
            self.kill(link.process, f"kill after {request.kind}")
        elif link.fate is Fate.CUT_AFTER:
            self.cut(link, f"cut after {request.kind}")
        else:
            link.deliver()

    def _waits_for_lock(self, link: Link) -> bool:
        return link.pid is not None and bool(self._observer.blockers([link.pid]))

    def _resume_unblocked(self) -> bool:
        waiting = self._observer.blockers([link.pid for link in self._blocked if link.pid])
        for link in self._blocked:
            if link.answer.is_complete or link.pid not in waiting:
                self._blocked.remove(link)
                self._in_flight, self._polls = link, 0
                if link.answer.is_complete:
                    self.has_answered(link)
                return True
        return False

    def _is_deadlocked(self) -> bool:
        """Return whether only the server can go on.

        Locks held by a frozen process are freed in virtual time; anything else that is in the
        way is a deadlock, which the server ends in real time.
        """
        if not self._blocked or self._answered or self._turns:
            return False
        if any(link.answer.is_complete for link in self._blocked):
            return False
        frozen = {link.pid for link in self.links if link.process.is_frozen}
        waiting = self._observer.blockers([link.pid for link in self._blocked if link.pid])
        return not waiting or not all(map(frozen.issuperset, waiting.values()))

    def note(self, fault: str, whom: str) -> None:
        self.faults[fault] += 1
        self._tell(f"{whom} !! {fault}")

    def _tell(self, line: str) -> None:
        self.trace.append(line)
        self._digest.update(line.encode())
