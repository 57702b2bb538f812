"""Jobs are found by start, end, duration and error, and by what they wait for."""

from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest

from support.world import World, at
from syncline.clock import new_id
from syncline.errors import Invalid
from syncline.model import Job
from syncline.services.pagination import Listing
from syncline.store.listings.jobs import JOBS_SEARCHED

TENANTS, PROVIDERS = ("acme", "birch"), ("github", "git", "demo")
CLASSES = ("Transient", "Timeout", None)
SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)


async def fill(world: World) -> None:
    """Insert jobs that have ended, of every tenant, provider, error and duration."""
    for n in range(48):
        connection = await world.connection(tenant=TENANTS[n % 2], provider=PROVIDERS[n % 3])
        started = at("09:00") + timedelta(minutes=n)
        error = CLASSES[n // 2 % 3]
        await world.job(
            connection,
            id=new_id() if n % 4 else UUID(int=2**127 + n),  # some ids are random
            status=("succeeded", "failed", "cancelled")[n % 3],
            started_at=started,
            finished_at=started + timedelta(seconds=n * n),
            error=f'{{"class": "{error}"}}' if error else None,
        )


async def pages(world: World, limit: int = 5, **asked: Any) -> list[Job]:
    found: list[Job] = []
    page: Listing[Job] = Listing([], "")
    while page.next_page is not None:
        page = await world.engine.jobs.list(after=page.next_page or None, limit=limit, **asked)
        assert len(page) <= limit
        found += page
    return found


def length(job: Job) -> timedelta:
    assert job.finished_at is not None
    assert job.started_at is not None
    return job.finished_at - job.started_at


def started(job: Job) -> Any:
    return job.started_at


def ended(job: Job) -> Any:
    return job.finished_at


FILTERS: list[tuple[dict[str, Any], Callable[[Job], bool]]] = [
    ({"started_after": at("09:30")}, lambda job: started(job) >= at("09:30")),
    ({"started_before": at("09:30")}, lambda job: started(job) < at("09:30")),
    (
        {"finished_after": at("09:20"), "finished_before": at("09:40")},
        lambda job: at("09:20") <= ended(job) < at("09:40"),
    ),
    ({"min_duration": 900 * SECOND}, lambda job: length(job) >= 900 * SECOND),
    ({"max_duration": 900 * SECOND}, lambda job: length(job) < 900 * SECOND),
    (
        {"min_duration": 100 * SECOND, "max_duration": 900 * SECOND},
        lambda job: 100 * SECOND <= length(job) < 900 * SECOND,
    ),
    (
        {"error_class": "Timeout"},
        lambda job: job.error is not None and job.error["class"] == "Timeout",
    ),
    ({"error_class": "unknown"}, lambda job: False),
]
OTHERS: list[dict[str, Any]] = [
    {},
    {"tenant_id": "acme"},
    {"provider_slug": "git"},
    {"status": "failed"},
    {"status": "succeeded"},
    {"tenant_id": "birch", "status": "cancelled"},
]


async def test_jobs_are_found_by_each_filter_with_others(world: World) -> None:
    await fill(world)
    everything = await world.engine.jobs.list(limit=1000)
    assert len(everything) == 48

    for asked, is_wanted in FILTERS:
        for others in OTHERS:
            expected = [
                job
                for job in everything
                if is_wanted(job) and all(getattr(job, key) == others[key] for key in others)
            ]
            assert await pages(world, **asked, **others) == expected, (asked, others)


async def test_jobs_of_one_connection_are_filtered_too(world: World) -> None:
    connection = await world.connection()
    for n in range(6):
        finished = at("10:00") + timedelta(minutes=n)
        await world.job(
            connection, status="succeeded", started_at=at("10:00"), finished_at=finished
        )

    found = await pages(world, 2, connection_id=connection.id, min_duration=timedelta(minutes=3))

    assert [length(job) for job in found] == [timedelta(minutes=n) for n in (5, 4, 3)]


async def test_the_slowest_jobs_come_first(world: World) -> None:
    await fill(world)

    for others in OTHERS:
        found = await world.engine.jobs.list(order="slowest", limit=5, **others)
        assert found
        assert found.next_page is None
        assert all(length(one) >= length(next_) for one, next_ in pairwise(found))
        everything = await pages(world, **others)
        assert length(found[0]) == max(length(job) for job in everything)


async def test_a_search_stops_after_so_many_jobs_and_goes_on(world: World) -> None:
    connection = await world.connection()
    old = await world.job(
        connection, id=UUID(int=1), status="failed", finished_at=at("08:00"), error='{"class": "X"}'
    )
    await world.sql(
        "INSERT INTO {schema}.sync_jobs (id, tenant_id, provider_slug, connection_id, status,"
        " finished_at, created_at)"
        " SELECT lpad(to_hex(n + 1), 32, '0')::uuid, $1, $2, $3, 'succeeded', $4, $5"
        " FROM generate_series(1, $6::int) n",
        *(connection.tenant_id, connection.provider_slug, connection.id, at("09:00"), at("07:00")),
        JOBS_SEARCHED + 10,
    )

    asked: list[dict[str, Any]] = [{}, {"tenant_id": "acme"}]
    for others in asked:
        first = await world.engine.jobs.list(error_class="X", **others)
        assert list(first) == []
        assert first.searched_to == at("07:00")
        second = await world.engine.jobs.list(error_class="X", after=first.next_page, **others)
        assert [job.id for job in second] == [old]
        assert second.next_page is None
        assert second.searched_to is None


async def fill_queue(world: World) -> None:
    """Insert jobs that are due, scheduled for later, in backoff, and whose backoff has ended."""
    world.clock.set(at("12:00"))
    waits = (("11:50", None), ("12:30", None), ("11:00", "12:20"), ("11:00", "11:59"))
    for n in range(40):
        scheduled, retried = waits[n % 4]
        connection = await world.connection(tenant=TENANTS[n % 2], provider=PROVIDERS[n % 3])
        await world.job(
            connection,
            scheduled_at=at(scheduled) + timedelta(seconds=n % 8),
            retry_after=at(retried) + timedelta(seconds=n % 8) if retried else None,
            error='{"class": "Transient"}' if retried else None,
            priority=n % 5,
        )
    await world.running_job(await world.connection())


async def test_the_queue_is_listed_by_what_its_jobs_wait_for(world: World) -> None:
    await fill_queue(world)
    everything = [job for job in await world.engine.jobs.list(limit=99) if job.status == "queued"]
    states: dict[str, Callable[[Job], bool]] = {
        "due": lambda job: (job.retry_after or job.scheduled_at) <= at("12:00"),
        "later": lambda job: job.retry_after is None and job.scheduled_at > at("12:00"),
        "backoff": lambda job: job.retry_after is not None and job.retry_after > at("12:00"),
    }

    counted = (await world.engine.stats.overview()).queue
    for state, belongs in states.items():
        expected = {job.id for job in everything if belongs(job)}
        assert len(expected) == getattr(counted, state)
        for others in (*OTHERS[:3], {"error_class": "Transient"}):
            found = await pages(world, 3, status=state, **others)
            ids = [job.id for job in found]
            wanted = {
                job.id
                for job in everything
                if job.id in expected
                and all(getattr(job, key) == others[key] for key in others if key != "error_class")
                and ("error_class" not in others or job.error is not None)
            }
            assert len(ids) == len(set(ids)), (state, others)
            assert set(ids) == wanted, (state, others)


async def test_due_jobs_come_in_the_order_of_their_claim(world: World) -> None:
    await fill_queue(world)

    found = await pages(world, 4, status="due", provider_slug="git")

    fresh = [job for job in found if job.retry_after is None]
    assert found[: len(fresh)] == fresh
    order = [(-job.priority, job.scheduled_at, job.id) for job in fresh]
    assert order == sorted(order)


async def test_a_filter_that_makes_no_sense_is_refused(world: World) -> None:
    nonsense: dict[str, Any] = {
        "status": "asleep",
        "order": "fastest",
        "error_class": "a\0b",
        "started_after": at("10:00").replace(tzinfo=None),
        "finished_before": at("10:00").replace(year=1),
        "min_duration": -SECOND,
        "max_duration": timedelta(days=99_999),
    }
    for name, value in nonsense.items():
        with pytest.raises(Invalid, match=name):
            await world.engine.jobs.list(**{name: value})
    for token in ("nonsense", "x" * 5000):
        with pytest.raises(Invalid, match="after is not a token"):
            await world.engine.jobs.list(status="due", after=token)
