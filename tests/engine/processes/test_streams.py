"""A worker that is killed in the middle of a stream of pages."""

from collections import Counter
from typing import Any

import pytest

from support.crash_connectors import PAGE
from support.processes import LEASE_SECONDS, Fleet, exit_code, until
from syncline import Engine, Settings

pytestmark = pytest.mark.process

TOTAL = 40


async def add_due_stream(fleet: Fleet, *, page_seconds: float) -> Any:
    [row] = await fleet.sql(
        """
        WITH connection AS (
            INSERT INTO syncline.connections (tenant_id, provider_slug, external_id, config)
            VALUES ('acme', 'streamed', 'a', jsonb_build_object('total', $1::int,
                                                                'page_seconds', $2::float))
            RETURNING *
        )
        INSERT INTO syncline.sync_jobs (tenant_id, provider_slug, connection_id)
        SELECT tenant_id, provider_slug, id FROM connection RETURNING id
        """,
        *(TOTAL, page_seconds),
    )
    return row["id"]


async def stored(fleet: Fleet) -> list[int]:
    rows = await fleet.sql("SELECT (payload -> 'number')::int FROM syncline.signals ORDER BY id")
    return [row[0] for row in rows]


async def job(fleet: Fleet, job_id: Any) -> Any:
    [row] = await fleet.sql("SELECT * FROM syncline.sync_jobs WHERE id = $1", job_id)
    return row


async def has_succeeded(fleet: Fleet, job_id: Any) -> bool:
    return bool((await job(fleet, job_id))["status"] == "succeeded")


async def test_a_stream_whose_worker_is_killed_loses_and_doubles_nothing(fleet: Fleet) -> None:
    """The death costs one page at most; the pages before it are kept."""
    job_id = await add_due_stream(fleet, page_seconds=0.05)
    worker = fleet.start_worker()
    await until(lambda: len(fleet.ledger.entries("called")) > 3, within=20)
    worker.kill()
    await exit_code(worker, within=5)
    died_at = (await job(fleet, job_id))["cursor"]
    fleet.start_worker()

    await until(lambda: has_succeeded(fleet, job_id), within=LEASE_SECONDS + 15)
    assert int(died_at) >= 2 * PAGE
    assert await stored(fleet) == list(range(TOTAL))
    asked = Counter(entry.cursor for entry in fleet.ledger.entries("called"))
    assert asked.total() <= TOTAL // PAGE + 1
    async with Engine(Settings(database_url=fleet.url)) as engine:
        assert await engine.verify() == []
