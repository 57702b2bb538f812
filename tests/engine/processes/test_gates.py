"""Several workers and a provider that counts its calls, limits the application, or goes down."""

import asyncio
import time

import pytest

from support.httpserver import Reply, Seen, http_server
from support.processes import Fleet, until
from syncline import Engine, Settings

pytestmark = pytest.mark.process

CONNECTIONS, PAGES = 20, 40
PAUSE_SECONDS = 4
DOWN_SECONDS = 6
NOTICED_SECONDS = 1.0  # P5: from then on nobody calls


class Provider:
    """Answers calls with `status`, or once with a limit, and remembers when they came."""

    def __init__(self) -> None:
        self.calls: list[float] = []
        self.status = 200
        self.limits_once = False
        self.limited_at = 0.0

    async def answer(self, seen: Seen) -> Reply:
        self.calls.append(time.monotonic())
        await asyncio.sleep(0.02)
        if self.limits_once:
            self.limits_once, self.limited_at = False, time.monotonic()
            return Reply(429, headers={"retry-after": str(PAUSE_SECONDS)})
        return Reply(self.status, b"{}")

    def between(self, first: float, last: float) -> int:
        return sum(first <= at <= last for at in self.calls)


async def test_one_limit_of_the_application_stops_every_worker_and_costs_nobody_an_attempt(
    fleet: Fleet,
) -> None:
    provider = Provider()
    async with http_server(provider.answer) as server:
        await add_due(fleet, server.url, total=PAGES)
        for _ in range(2):
            fleet.start_worker(http__allow_private="calling", executor__concurrency=CONNECTIONS)
        await until(lambda: len(provider.calls) > 2 * CONNECTIONS, within=20)
        provider.limits_once = True
        await until(lambda: provider.limited_at)
        await until(lambda: all_ended(fleet), within=40)

    began = provider.limited_at
    assert provider.between(began + NOTICED_SECONDS, began + PAUSE_SECONDS) == 0
    assert provider.between(began + PAUSE_SECONDS, began + 60) > 0
    assert await fleet.count("sync_jobs", "status = 'succeeded'") == CONNECTIONS
    assert await fleet.count("sync_jobs", "attempts > 0") <= 1  # the one that was told
    assert await fleet.count("signals") == CONNECTIONS * PAGES
    # Nothing is repeated but the pages that were in flight.
    assert len(provider.calls) <= CONNECTIONS * (PAGES + 1)
    async with Engine(Settings(database_url=fleet.url)) as engine:
        assert await engine.verify() == []


async def test_a_provider_that_is_down_is_probed_and_costs_no_attempts_once_that_is_known(
    fleet: Fleet,
) -> None:
    provider = Provider()
    provider.status = 503
    async with http_server(provider.answer) as server:
        await add_due(fleet, server.url, total=1, connections=50)
        for _ in range(2):
            fleet.start_worker(
                http__allow_private="calling",
                executor__concurrency=10,
                breaker__first_probe_seconds=1,
                rate_limit__base_seconds=0.5,
                rate_limit__max_seconds=0.5,
            )
        await until(lambda: fleet.count("gates", "opened_at IS NOT NULL"), within=20)
        await asyncio.sleep(NOTICED_SECONDS)
        before, attempts = len(provider.calls), await sum_of_attempts(fleet)
        await asyncio.sleep(DOWN_SECONDS)
        probes, more = len(provider.calls) - before, await sum_of_attempts(fleet) - attempts
        provider.status = 200
        await until(lambda: all_ended(fleet), within=30)

    assert 1 <= probes <= 4  # after 1, 3 and 7 s
    assert more <= probes
    assert await fleet.count("sync_jobs", "status = 'succeeded'") == 50
    assert await fleet.count("gates") == 0


async def add_due(fleet: Fleet, url: str, *, total: int, connections: int = CONNECTIONS) -> None:
    await fleet.sql(
        """
        WITH connection AS (
            INSERT INTO syncline.connections (tenant_id, provider_slug, external_id, config)
            SELECT 'acme', 'calling', number::text,
                   jsonb_build_object('url', $1::text, 'total', $2::int)
              FROM generate_series(1, $3::int) AS number
            RETURNING *
        )
        INSERT INTO syncline.sync_jobs (tenant_id, provider_slug, connection_id)
        SELECT tenant_id, provider_slug, id FROM connection
        """,
        *(url, total, connections),
    )


async def all_ended(fleet: Fleet) -> bool:
    return await fleet.count("sync_jobs", "status IN ('queued', 'running')") == 0


async def sum_of_attempts(fleet: Fleet) -> int:
    rows = await fleet.sql("SELECT sum(attempts) FROM syncline.sync_jobs")
    return int(rows[0][0])
