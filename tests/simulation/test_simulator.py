"""The simulator itself: the same seed lives the same life, and its eyes are open."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import Any

import asyncpg
import pytest

from simulation.applications import WINDOW_SECONDS, Application
from simulation.auditor import Auditor, Broken
from simulation.bandwidth import Speed
from simulation.life import START, live
from simulation.link import Fate, Link
from simulation.loop import Process, SimulatedLoop
from simulation.network import SimulatedNetwork
from simulation.observer import Observer
from simulation.place import QUIET_SERVER, migrate
from simulation.wire import Request
from simulation.workers import context_of
from syncline.testing import ManualClock
from syncline.testing.database import TemporaryServer

SEED, ANOTHER = 11, 9


class Script:
    """Chance that a test decides: who is next, and what becomes of calls."""

    def __init__(self, *fates: Fate) -> None:
        self.fates = list(fates)

    def choose(self, count: int) -> int:
        return 0

    def fate_of(self, link: Link, request: Request) -> Fate:
        return self.fates.pop(0) if self.fates and request.is_commit else Fate.PASS


class Place:
    """A simulated network on a real database, and one process that uses it."""

    def __init__(self, url: str, observer: Observer, *fates: Fate) -> None:
        self.url = url
        self.observer = observer
        self.clock = ManualClock(START)
        self.commits = 0
        self.network = SimulatedNetwork(observer, Script(*fates), self._on_commit)
        self.loop = SimulatedLoop(self.clock, self.network)

    def _on_commit(self) -> None:
        self.commits += 1

    def run(self, work: Any, process: Process | None = None) -> Any:
        process = process or Process("somebody")
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner, self.loop.deciding_time():
            try:
                return runner.run(work, context=context_of(process))
            finally:
                self.network.end()
                process.thaw(self.loop)


@asynccontextmanager
async def a_session(url: str, **settings: str) -> AsyncIterator[Any]:
    session = await asyncpg.connect(url, server_settings=settings)
    try:
        yield session
    finally:
        session.terminate()


@pytest.fixture
def observer(database_url: str) -> Any:
    with closing(Observer(database_url)) as observer:
        yield observer


def test_every_signal_is_stored_once_and_the_same_seed_lives_the_same_life() -> None:
    """On a server that does nothing of its own accord, as `make simulate` has it.

    `make simulate SEEDS=200` lives through many more.
    """
    with TemporaryServer(server_settings=QUIET_SERVER) as server:
        template = server.create_database()
        asyncio.run(migrate(template))
        urls = [server.create_database(template) for _ in range(3)]
        seeds = (SEED, SEED, ANOTHER)
        lives = [live(seed, url) for seed, url in zip(seeds, urls, strict=True)]

    for report in lives:
        assert report.failure is None, f"{report.failure}\nagain: make simulate SEED={report.seed}"
        assert report.signals > 100
        assert report.faults.total() > 10
    first, second, other = lives
    assert (first.digest, first.calls) == (second.digest, second.calls)
    assert first.digest != other.digest


def test_time_passes_only_when_nothing_else_can_happen(
    database_url: str, observer: Observer
) -> None:
    place = Place(database_url, observer)

    async def work() -> list[float]:
        async with a_session(database_url) as session:
            await session.execute("SELECT pg_sleep(0.05)")
        after_work = asyncio.get_running_loop().time()
        await asyncio.sleep(3600)
        return [after_work, asyncio.get_running_loop().time()]

    assert place.run(work()) == [0, 3600]
    assert (place.clock() - START).total_seconds() == 3600


def test_sessions_share_a_slow_line(database_url: str, observer: Observer) -> None:
    place = Place(database_url, observer)

    async def send(text: str) -> float:
        async with a_session(database_url) as session:
            await session.execute("SELECT $1::text", "")
            began = place.loop.time()
            await session.execute("SELECT $1::text", text)
            return place.loop.time() - began

    async def work() -> tuple[float, list[float]]:
        place.network.set_speed_of_all(Speed(25_000, latency_seconds=0))
        alone = await send("x" * 100_000)
        return alone, await asyncio.gather(*[send("x" * 100_000) for _ in range(2)])

    alone, [one, other] = place.run(work())
    assert alone == pytest.approx(8, rel=0.01)  # there and back
    assert one == other == pytest.approx(16, rel=0.01)


def test_the_servers_timeouts_count_virtual_time(database_url: str, observer: Observer) -> None:
    place = Place(database_url, observer)
    observer.ask(INSERT.format("('acme', 'github', '1')"))
    lock = f"{ROWS} FOR UPDATE"

    async def wait_for_lock() -> float:
        async with a_session(database_url, lock_timeout="2000") as session:
            began = place.loop.time()
            with pytest.raises(asyncpg.LockNotAvailableError):
                await session.execute(lock)
            return place.loop.time() - began

    async def work() -> tuple[float, bool]:
        settings = {"idle_in_transaction_session_timeout": "5000"}
        async with a_session(database_url, **settings) as holder:
            await holder.execute("BEGIN")
            await holder.execute(lock)
            waited = await wait_for_lock()
            await asyncio.sleep(2.9)
            was_open = not holder.is_closed()
            await asyncio.sleep(0.2)
            return waited, was_open and holder.is_closed()

    assert place.run(work()) == (2, True)


INSERT = "INSERT INTO syncline.connections (tenant_id, provider_slug, external_id) VALUES {}"
ROWS = "SELECT FROM syncline.connections"


@pytest.mark.parametrize(("fate", "rows"), [(Fate.CUT_BEFORE, 0), (Fate.CUT_AFTER, 1)])
def test_a_commit_can_be_cut_before_and_after(
    database_url: str, observer: Observer, fate: Fate, rows: int
) -> None:
    place = Place(database_url, observer, fate)

    async def work() -> None:
        async with a_session(database_url) as session, session.transaction():
            await session.execute(INSERT.format("('acme', 'github', '1')"))

    with pytest.raises(asyncpg.ConnectionDoesNotExistError):
        place.run(work())
    assert len(observer.ask(ROWS)) == rows == place.commits


def test_a_killed_process_leaves_nothing_open_and_does_nothing_more(
    database_url: str, observer: Observer
) -> None:
    place, victim = Place(database_url, observer, Fate.KILL_BEFORE), Process("victim")
    came_back = []

    async def work() -> None:
        try:
            async with a_session(database_url) as session, session.transaction():
                await session.execute(INSERT.format("('acme', 'github', '1')"))
        finally:
            came_back.append(place.loop.time())

    async def meanwhile() -> None:
        task = place.loop.create_task(work(), context=context_of(victim))
        await asyncio.sleep(100)
        assert victim.is_dead
        assert came_back == []
        assert observer.ask(ROWS) == []
        assert len(observer.ask("SELECT FROM pg_stat_activity WHERE state ~ 'transaction'")) == 0
        victim.thaw(place.loop)
        await asyncio.gather(task, return_exceptions=True)

    place.run(meanwhile())
    assert came_back == [100]


def test_a_frozen_process_finds_everything_late(database_url: str, observer: Observer) -> None:
    place, sleeper = Place(database_url, observer), Process("sleeper")
    woken = []

    async def nap() -> None:
        await asyncio.sleep(1)
        woken.append(place.loop.time())

    async def meanwhile() -> None:
        place.loop.create_task(nap(), context=context_of(sleeper))
        await asyncio.sleep(0)
        sleeper.freeze()
        await asyncio.sleep(50)
        sleeper.thaw(place.loop)
        await asyncio.sleep(1)

    place.run(meanwhile())
    assert woken == [50]


def test_a_call_that_waits_for_a_lock_lets_others_go_on(
    database_url: str, observer: Observer
) -> None:
    place = Place(database_url, observer)
    observer.ask(INSERT.format("('acme', 'github', '1')"))
    order = []

    async def change(name: str, pause: float) -> None:
        async with a_session(database_url) as session, session.transaction():
            await session.execute("UPDATE syncline.connections SET external_id = $1", name)
            await asyncio.sleep(pause)
            order.append(name)

    async def both() -> None:
        await asyncio.gather(change("first", 0), change("second", 0))

    place.run(both())
    assert order == ["first", "second"]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("SET status = 'queued', finished_at = NULL", "a succeeded job changed"),
        ("SET priority = 3", "a succeeded job changed"),
    ],
)
def test_the_auditor_sees_a_finished_job_change(
    observer: Observer, change: str, complaint: str
) -> None:
    auditor = Auditor(observer, ManualClock(START), cursors_only_advance=True)
    observer.ask(INSERT.format("('acme', 'github', '1')"))
    observer.ask(
        "INSERT INTO syncline.sync_jobs"
        " (tenant_id, provider_slug, connection_id, status, finished_at)"
        " SELECT tenant_id, provider_slug, id, 'succeeded', now() FROM syncline.connections"
    )
    observer.ask("UPDATE syncline.connections SET metadata = '{\"sync\": {}}'")
    auditor.look()

    observer.ask(f"UPDATE syncline.sync_jobs {change}")
    with pytest.raises(Broken, match=complaint):
        auditor.look()


def test_the_auditor_misses_no_commit_that_happens_while_it_looks(observer: Observer) -> None:
    """One that it missed would leave a finished job running, and caps overrun, in its eyes."""
    observer.ask(INSERT.format("('acme', 'github', '1')"))
    observer.ask(
        "INSERT INTO syncline.sync_jobs"
        " (tenant_id, provider_slug, connection_id, status, lease_token, lease_expires_at)"
        " SELECT tenant_id, provider_slug, id, 'running', id, now() FROM syncline.connections"
    )
    observer.ask("UPDATE syncline.connections SET metadata = '{\"sync\": {}}'")
    busy = BusyObserver(observer)
    auditor = Auditor(busy, ManualClock(START), cursors_only_advance=True)  # type: ignore[arg-type]
    auditor.caps = {("acme", ""): 1}
    auditor.look()

    busy.meanwhile = (
        "UPDATE syncline.sync_jobs SET status = 'succeeded', finished_at = now(),"
        " lease_token = NULL, lease_expires_at = NULL"
    )
    auditor.look()
    observer.ask(
        "INSERT INTO syncline.sync_jobs"
        " (tenant_id, provider_slug, connection_id, status, lease_token, lease_expires_at)"
        " SELECT tenant_id, provider_slug, id, 'running', id, now() FROM syncline.connections"
    )
    auditor.look()

    assert auditor.commits == 3


class BusyObserver:
    """An observer beside whom somebody else commits, right after his next question."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self.meanwhile = ""

    def ask(self, query: str, *arguments: Any) -> list[Any]:
        answer = self._observer.ask(query, *arguments)
        change, self.meanwhile = self.meanwhile, ""
        if change:
            self._observer.ask(change)
        return answer


def test_an_application_allows_only_so_many_calls_in_any_window() -> None:
    application = Application(limit=2)

    after = WINDOW_SECONDS + 1.0
    refusals = [application.refuse(now) for now in (0.0, 4.0, 9.0, WINDOW_SECONDS, after)]

    assert [type(refusal).__name__ for refusal in refusals] == [
        *("NoneType", "NoneType", "RateLimited", "NoneType", "RateLimited")
    ]
    assert application.overdrawn_at == []
    assert str(Application(is_down=True).refuse(0.0)) == "the provider is down"


def test_an_application_with_a_budget_notes_a_call_too_many() -> None:
    application = Application(limit=1, has_budget=True)

    application.refuse(0.0)
    application.refuse(5.0)

    assert application.overdrawn_at == [5.0]
