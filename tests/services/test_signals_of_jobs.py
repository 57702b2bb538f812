"""R5: the signals of a run are found by it."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from support.world import World, at
from syncline import NotFound, Signal, SyncResult
from syncline.model import SignalFilter


def page(*numbers: int) -> SyncResult:
    found = [Signal("seen", at("10:00"), {"n": n}, dedupe_key=str(n)) for n in numbers]
    return SyncResult(found, next_cursor=numbers[-1])


async def run(world: World, *numbers: int, connection: Any = None) -> Any:
    """Run a job that stores these signals; return it."""
    job_id = await world.job(connection or await world.connection())
    world.script(page(*numbers))
    await world.run_due()
    return await world.get_job(job_id)


async def numbers_of(world: World, **filters: Any) -> list[int]:
    return [one.payload["n"] for one in await world.engine.signals.list(**filters)]


async def test_a_job_finds_its_own_signals(world: World) -> None:
    connection = await world.connection()
    first = await run(world, 1, 2, connection=connection)
    await run(world, 3, connection=connection)
    await run(world, 4)

    assert await numbers_of(world, job_id=first.id) == [1, 2]
    assert await numbers_of(world, job_id=first.id, newest_first=True) == [2, 1]
    assert await numbers_of(world, job_id=first.id, connection_id=connection.id) == [1, 2]
    assert await numbers_of(world, job_id=first.id, connection_id=uuid4()) == []
    assert await numbers_of(world, job_id=first.id, kind="other") == []


async def test_the_pages_of_a_listing_continue_within_the_job(world: World) -> None:
    job = await run(world, *range(10))
    seen: list[int] = []
    after = None
    while True:
        found = await world.engine.signals.list(job_id=job.id, after=after, limit=3)
        seen += [one.payload["n"] for one in found]
        after = found.next_page
        if after is None:
            break

    assert seen == [*range(10)]


async def test_what_a_running_job_stored_is_found_too(world: World) -> None:
    connection = await world.connection()
    job_id = await world.running_job(connection)
    await world.sql(
        "INSERT INTO {schema}.signals (tenant_id, provider_slug, connection_id, job_id, kind,"
        " payload) VALUES ('acme', 'github', $1, $2, 'seen', '{\"n\": 7}')",
        *(connection.id, job_id),
    )

    assert await numbers_of(world, job_id=job_id) == [7]


async def test_times_narrow_what_a_job_finds(world: World) -> None:
    job = await run(world, 1)
    [signal] = await world.engine.signals.list(job_id=job.id)
    later = signal.received_at + timedelta(seconds=1)

    assert await numbers_of(world, job_id=job.id, since=later) == []
    assert await numbers_of(world, job_id=job.id, until=later) == [1]


async def test_the_signals_of_a_foreign_job_are_not_found(world: World) -> None:
    job = await run(world, 1)

    assert await numbers_of(world, job_id=job.id, tenant_id="acme") == [1]
    for filters in ({"job_id": job.id, "tenant_id": "birch"}, {"job_id": uuid4()}):
        with pytest.raises(NotFound):
            await world.engine.signals.list(**filters)


async def test_a_job_can_be_followed(world: World) -> None:
    first, second = await run(world, 1), await run(world, 2)

    for job, number in ((first, 1), (second, 2)):
        [signal] = (await world.engine.signals.follow(SignalFilter(job_id=job.id))).signals
        assert signal.payload == {"n": number}
