"""A slow line between a worker and the database costs time, and nothing else."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pytest

from simulation.bandwidth import Speed
from simulation.stage import Stage
from syncline import Connection, Connector, Signal, SyncResult

MEGABIT = 125_000  # bytes


class Heavy(Connector):
    """Returns one page of a few large signals for each connection."""

    provider = "heavy"

    def __init__(self) -> None:
        self.signals, self.size = 1, 0

    async def sync(self, connection: Connection, cursor: Any) -> SyncResult:
        signal = Signal("seen", datetime(2025, 1, 1, tzinfo=UTC), {"text": "x" * self.size})
        return SyncResult([] if cursor else [signal] * self.signals, next_cursor=1)


@pytest.fixture
def connector() -> Heavy:
    return Heavy()


@pytest.fixture
def stage(database_url: str, connector: Heavy) -> Iterator[Stage]:
    with closing(Stage(database_url, connector, lease_seconds=3)) as stage:
        yield stage


async def sync_all(stage: Stage, connections: int) -> None:
    """Let connections be synced once, all of them at the same time."""
    for number in range(connections):
        await stage.engine.connections.create(
            tenant_id="acme", provider_slug="heavy", external_id=str(number)
        )
    async with asyncio.timeout(600):  # in virtual time
        await stage.engine.tick()
        await stage.engine.run_due()


def stored(stage: Stage) -> int:
    return len(stage.observer.ask("SELECT FROM syncline.signals"))


def test_the_server_waits_for_a_page_that_is_still_arriving(stage: Stage, connector: Heavy) -> None:
    """A session whose statement arrives stands idle, to the server; leases of 3 s allow 3 s."""
    connector.signals, connector.size = 4, 60_000
    stage.network.set_speed_of_all(Speed(MEGABIT / 2, latency_seconds=0.01))
    stage.do(sync_all(stage, 1))

    assert stored(stage) == 4
    assert stage.network.faults["idle in transaction"] == 0


def test_pages_that_take_too_long_together_are_stored_apart(stage: Stage, connector: Heavy) -> None:
    """Each takes five seconds, and all of them twenty: longer than a statement is given."""
    connector.size = 60_000
    stage.network.set_speed_of_all(Speed(12_000, latency_seconds=0.01))
    stage.do(sync_all(stage, 4))

    assert stored(stage) == 4
    jobs = stage.observer.ask("SELECT status, attempts FROM syncline.sync_jobs")
    assert [tuple(job) for job in jobs] == [("succeeded", 0)] * 4
    assert stage.network.faults["idle in transaction"] == 0
