"""One seed's world, from its first tick to its last check."""

import asyncio
import json
import random
import traceback
from collections import Counter
from collections.abc import Collection, Coroutine, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import asyncpg

from simulation.applications import budgets_of, choose_applications
from simulation.auditor import Auditor, Broken
from simulation.bandwidth import Speed
from simulation.loop import Process, SimulatedLoop
from simulation.network import SimulatedNetwork
from simulation.observer import Observer
from simulation.people import People
from simulation.provider import (
    LARGEST_OVERLAP,
    LARGEST_PAGE,
    Blocking,
    Calling,
    Ledger,
    Streaming,
)
from simulation.weather import Storms, Weather, climate_of
from simulation.workers import CREWS, Workers, context_of
from syncline import Engine, Settings
from syncline.testing import ManualClock

START = datetime(2025, 1, 1, tzinfo=UTC)
LEASE_SECONDS = 6.0
WAKING_SECONDS = 0.5  # by then a worker that was frozen has noticed what became of its leases
LONGEST_DRAIN_SECONDS = 240
LONGEST_DRAIN_BESIDE_HELD_SECONDS = 240
SLOW_IN_THE_END = 0.4  # of the seeds
WITH_OUTAGES = 0.5  # of the providers
FLOOD = 6  # connections of one tenant, all due at once
FIRST_STATEMENT = 0x1000000  # of one life: its numbers have all one length
SLOWEST_LINE, LONGEST_LATENCY_SECONDS = 20_000, 0.02  # bytes a second
PROBES = {"first_probe_seconds": 2, "longest_probe_seconds": 16}
# Errors of the server that belong to ordinary life: a lost race, a call that was cancelled, one
# that waited too long for a lock, and a server that was read-only.
EXPECTED_ERRORS = {"23505", "57014", "55P03", "25006"}

STORED = """
    SELECT c.external_id,
           (SELECT coalesce(json_agg((s.payload -> 'number')::int), '[]')::text
              FROM syncline.signals s WHERE s.connection_id = c.id) AS numbers
      FROM syncline.connections c
"""
LEFT_OVER = """
    SELECT id FROM syncline.sync_jobs WHERE connection_id = ANY ($1)
     UNION ALL
    SELECT id FROM syncline.signals WHERE connection_id = ANY ($2)
"""


@dataclass
class Report:
    """What a seed came to; without a failure, everything held."""

    seed: int
    failure: str | None = None
    digest: str = ""
    calls: int = 0
    commits: int = 0
    signals: int = 0
    virtual_seconds: float = 0
    # Seconds until everything was stored: after the rough times, beside held rows, and once these
    # were let go, perhaps over a slow line.
    drains: list[float] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    deeds: Counter[str] = field(default_factory=Counter)
    trace: list[str] = field(default_factory=list)


def live(seed: int, url: str, *, has_caps: bool = True) -> Report:
    """Live through a seed's world, on a migrated database without rows."""
    # The driver numbers its prepared statements. On a slow line a longer number takes longer.
    vars(asyncpg.connection)["_uid"] = 0
    with closing(Observer(url)) as observer:
        world = World(seed, url, observer)
        with asyncio.Runner(loop_factory=lambda: world.loop) as runner, world.loop.deciding_time():
            try:
                runner.run(world.live(has_caps=has_caps), context=context_of(world.operators))
            except Exception as error:
                world.report.failure = f"{type(error).__name__}: {error}"
            world.end()
    return world.report


class World:
    def __init__(self, seed: int, url: str, observer: Observer) -> None:
        # asyncpg numbers the statements of a process; a longer number takes longer to send.
        vars(asyncpg.connection)["_uid"] = FIRST_STATEMENT
        self.report = Report(seed)
        self._url = url
        self._observer = observer
        rng = self._rng = random.Random(seed)
        self._clock = ManualClock(START)
        self._climate = climate_of(rng)
        self._weather = Weather(self._chance(), self._climate)
        applications = choose_applications(rng)
        self._settings = _choose_settings(rng, url, budgets_of(applications))
        by_type = self._settings.executor.single_flight == "job_type"
        self._auditor = Auditor(observer, self._clock, cursors_only_advance=not by_type)
        overlap = float("inf") if by_type else WAKING_SECONDS
        self._ledger = Ledger(self._chance(), overlap, applications)
        self._network = SimulatedNetwork(observer, self._weather, self._auditor.look)
        self.operators = Process("people", is_mortal=False)
        self.loop = SimulatedLoop(self._clock, self._network, self._weather.linger)
        self.loop.set_exception_handler(self._on_unhandled)
        self._workers = Workers(self.loop, self._network, self._make_engine, self._chance())
        self._unhandled: list[str] = []

    async def live(self, *, has_caps: bool) -> None:
        """Live through rough times, then calm ones; in the end everything must have arrived."""
        async with Engine(self._settings, clock=self._clock, rng=self._chance()) as engine:
            people = People(engine, self._url, self._ledger, self._chance())
            self.report.deeds = people.deeds
            self._auditor.caps = await people.set_caps() if has_caps else {}
            for _ in range(self._rng.randint(2, 7)):
                await people.add_connection()
            for _ in range(self._rng.choice((0, 0, FLOOD))):
                await people.add_connection("initech")
            for role in self._rng.choice(CREWS):
                self._workers.start(role)
            await self._rough_times(people)
            await self._calm_times(people)
            self._check_everything(people)
            await people.verify()

    def end(self) -> None:
        """Write down what happened; then wake the dead, the server gone, to wind up their tasks."""
        network, report = self._network, self.report
        report.digest, report.calls, report.faults = network.digest, network.calls, network.faults
        report.commits, report.trace = self._auditor.commits, list(network.trace)
        report.answers = self._ledger.answers
        report.signals = sum(len(one.emitted_at) for one in self._ledger.accounts.values())
        report.virtual_seconds = self.loop.time()
        self.loop.set_exception_handler(lambda *_: None)
        network.end()
        self._workers.thaw_all(the_dead_too=True)

    async def _rough_times(self, people: People) -> None:
        self._ledger.misbehaviour = self._rng.choice((0.0, 0.15, 0.4))
        storms = Storms(self._chance(), self._climate, self._network, self._workers)
        activities = [
            asyncio.create_task(activity)
            for activity in (
                self._emit(),
                storms.blow(),
                people.meddle(),
                people.meddle(),
                people.hold_rows(),
                *self._fail_providers(),
            )
        ]
        seconds = self._rng.uniform(60, 180)
        done, _ = await asyncio.wait(
            activities, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
        )
        for activity in done:
            activity.result()
        for activity in activities:
            activity.cancel()
        await asyncio.gather(*activities, return_exceptions=True)

    def _fail_providers(self) -> Iterator[Coroutine[Any, Any, None]]:
        for application in self._ledger.applications.values():
            if self._rng.random() < WITH_OUTAGES:
                yield application.fail_now_and_then(
                    self._chance(), lambda what: self._network.note(what, "provider")
                )

    async def _calm_times(self, people: People) -> None:
        """Wait until everything is stored; nobody may be left behind for good."""
        self._weather.is_calm = True
        self._network.is_down = False
        self._network.set_speed_of_all(None)
        self._ledger.misbehaviour = 0
        for application in self._ledger.applications.values():
            application.is_down = False
        await people.resume_providers()
        self._workers.thaw_all()
        await people.delete_again()
        everybody = people.connections.keys()
        await self._drain(people, everybody, LONGEST_DRAIN_SECONDS)
        if not self._auditor.caps:  # a run whose rows are held goes on counting
            await self._drain_beside_held_rows(people)
        if self._rng.random() < SLOW_IN_THE_END:
            self._ledger.emit_everywhere(self._clock())
            self._network.set_speed_of_all(self._slow_speed(people))
        await people.trigger_all(everybody)
        await self._drain(people, everybody, LONGEST_DRAIN_SECONDS)
        await asyncio.sleep(2 * LEASE_SECONDS)

    async def _drain_beside_held_rows(self, people: People) -> None:
        """Hold rows of connections that are being synced, and sync the others; they go on."""
        self._ledger.emit_everywhere(self._clock())
        some = people.sample(self._rng.randint(1, len(people.connections) - 1))
        await people.trigger_all(some)
        async with people.holding(some) as held:
            others = people.connections.keys() - held
            await people.trigger_all(others)
            await self._drain(people, others, LONGEST_DRAIN_BESIDE_HELD_SECONDS)

    async def _drain(self, people: People, names: Collection[str], seconds: float) -> None:
        began = self.loop.time()
        while missing := self._missing(names):
            if self.loop.time() > began + seconds:
                raise Broken(f"not stored in {seconds} calm seconds: {missing}")
            await people.resume_all(names)
            await asyncio.sleep(2)
        self.report.drains.append(self.loop.time() - began)

    def _slow_speed(self, people: People) -> Speed:
        """Return a speed that could carry all that waits in half a minute, and any page within a
        lease."""
        accounts = {name: self._ledger.accounts[name] for name in people.connections}
        missing = self._missing(accounts)
        waiting = sum(accounts[name].bytes_of(count) for name, count in missing.items())
        largest = max(one.bytes_of(LARGEST_PAGE + LARGEST_OVERLAP) for one in accounts.values())
        slowest = max(SLOWEST_LINE, largest / LEASE_SECONDS * 1.5, waiting / 30)
        return Speed(slowest, self._rng.uniform(0, LONGEST_LATENCY_SECONDS))

    async def _emit(self) -> None:
        rng = self._chance()
        while True:
            await asyncio.sleep(rng.expovariate(1 / 2))
            self._ledger.emit(self._clock())

    def _missing(self, names: Collection[str]) -> dict[str, int]:
        stored = self._stored()
        missing = {
            name: len(self._ledger.accounts[name].emitted_at) - len(set(stored[name]))
            for name in sorted(names)
        }
        return {name: count for name, count in missing.items() if count}

    def _check_everything(self, people: People) -> None:
        """Compare what is stored with the ledger, and collect what went wrong out of sight."""
        for name, numbers in self._stored().items():
            expected = range(1, len(self._ledger.accounts[name].emitted_at) + 1)
            if sorted(numbers) != list(expected):
                raise Broken(f"{name}: {Counter(numbers) - Counter(expected)} too many")
        gone = list(people.deleted)
        emptied = [id_ for id_, keeps_signals in people.deleted.items() if not keeps_signals]
        if left := self._observer.ask(LEFT_OVER, gone, emptied):
            raise Broken(f"rows of deleted connections are left: {left}")
        for slug, application in self._ledger.applications.items():
            if application.overdrawn_at:
                raise Broken(f"{slug} was called above its budget at {application.overdrawn_at}")
        errors = set(self._network.errors) - EXPECTED_ERRORS
        for wrong in (errors, self._ledger.complaints, self._unhandled, self._workers.failure):
            if wrong:
                raise Broken("\n".join(wrong) if isinstance(wrong, list) else str(wrong))

    def _stored(self) -> dict[str, list[int]]:
        return {name: json.loads(text) for name, text in self._observer.ask(STORED)}

    def _make_engine(self) -> Engine:
        connectors = [one(self._ledger) for one in (Calling, Blocking, Streaming)]
        return Engine(self._settings, connectors, clock=self._clock, rng=self._chance())

    def _chance(self) -> random.Random:
        """Return dice of their own for one part of the world, loaded by the seed."""
        return random.Random(self._rng.random())

    def _on_unhandled(self, _: Any, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self._unhandled += [str(context.get("message")), *traceback.format_exception(error)]


def _choose_settings(rng: random.Random, url: str, budgets: list[dict[str, Any]]) -> Settings:
    return Settings(
        database_url=url,
        budgets=budgets,
        fairness={"enabled": rng.random() < 0.8},
        portable=True,  # notifications arrive when they like
        pgbouncer=rng.random() < 0.1,
        pool_size=rng.randint(2, 4),
        scheduler={
            "tick_interval_seconds": rng.choice((5, 10, 20)),
            "lookahead_seconds": rng.choice((0, 10, None)),
            "default_interval_seconds": 60,
            "batch_size": rng.choice((1, 2, 1000)),
        },
        executor={
            "concurrency": rng.choice((1, 3, 8)),
            "poll_interval_seconds": rng.choice((1, 2, 4)),
            "lease_seconds": LEASE_SECONDS,
            "max_run_seconds": 20,
            "shutdown_grace_seconds": rng.choice((0, 3)),
            "single_flight": "job_type" if rng.random() < 0.2 else "connection",
        },
        rate_limit={"base_seconds": 1, "max_seconds": 15},
        # Few connections, so few of them must say that their provider is down.
        breaker=rng.choice(
            (
                {},
                {"attempts": 4, "connections": 2, "window_seconds": 20, **PROBES},
                {"attempts": 2, "connections": 1, "window_seconds": 5, **PROBES},
            )
        ),
    )
