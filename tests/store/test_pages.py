"""Pages lead through everything once, in order, whatever the filter, while rows come and go."""

from dataclasses import asdict
from datetime import timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID, uuid4

import pytest

from support.world import World, at
from syncline.errors import Invalid
from syncline.model import Connection, Job, JobFilter, SignalFilter, StoredSignal
from syncline.services.pagination import Listing

TENANTS, PROVIDERS = ("acme", "birch"), ("github", "git", "demo")
STATUSES = ("active", "active", "paused", "error")


async def fill_connections(world: World) -> None:
    rows = [
        (
            uuid4(),
            TENANTS[n % 2],
            PROVIDERS[n % 3],
            f"{'Über' if n % 5 else 'a'}-{n}",
            STATUSES[n % 4],
            None if n % 7 == 0 else at("10:00") + timedelta(minutes=n // 3),
        )
        for n in range(60)
    ]
    await world.sql(
        "INSERT INTO {schema}.connections"
        " (id, tenant_id, provider_slug, external_id, status, last_finished_at)"
        " SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[],"
        " $6::timestamptz[])",
        *zip(*rows, strict=True),
    )


async def connections_by(world: World, limit: int = 7, **asked: Any) -> list[Connection]:
    """Return everything that the pages lead to."""
    found: list[Connection] = []
    page: Listing[Connection] = Listing([], "")
    while page.next_page is not None:
        page = await world.engine.connections.list(
            **asked, after=page.next_page or None, limit=limit
        )
        assert len(page) <= limit
        found += page
    return found


FILTERS: list[dict[str, Any]] = [
    {},
    {"tenant_id": "acme"},
    {"provider_slug": "git"},
    {"status": "error"},
    {"status": "active"},
    {"external_id_prefix": "Über-1"},
    {"tenant_id": "birch", "provider_slug": "demo", "status": "paused"},
    {"tenant_id": "acme", "external_id_prefix": "a"},
    {"provider_slug": "fax"},
]


ORDERS: dict[str, Any] = {
    "id": lambda one: one.id,
    "external_id": lambda one: (one.external_id.encode(), one.id),
    "staleness": lambda one: (one.last_finished_at or at("00:00"), one.id),
}


def is_wanted(one: Connection, asked: dict[str, Any]) -> bool:
    prefix = asked.get("external_id_prefix", "")
    others = {key: value for key, value in asked.items() if key != "external_id_prefix"}
    return one.external_id.startswith(prefix) and all(
        getattr(one, key) == value for key, value in others.items()
    )


async def test_pages_of_connections_are_those_wanted_in_order(world: World) -> None:
    await fill_connections(world)
    everything = await world.engine.connections.list(limit=1000)

    for asked in FILTERS:
        expected = [one for one in everything if is_wanted(one, asked)]
        for order, key in ORDERS.items():
            found = await connections_by(world, **asked, order=order)
            in_order = [one.id for one in sorted(expected, key=key)]
            assert [one.id for one in found] == in_order, (asked, order)


async def test_the_oldest_last_run_is_found_among_many(world: World) -> None:
    """The copies on the connections are old, in another order, and few of them are looked at."""
    await world.sql(
        "INSERT INTO {schema}.connections (id, tenant_id, provider_slug, external_id,"
        "                                  last_finished_at)"
        " SELECT lpad(to_hex(n), 32, '0')::uuid, 'acme', 'github', n::text,"
        "        $1::timestamptz + n % 700 * interval '1 minute' FROM generate_series(1, 1500) n",
        at("00:00"),
    )
    await world.sql(
        "INSERT INTO {schema}.sync_jobs (tenant_id, provider_slug, connection_id, status,"
        "                                started_at, finished_at)"
        " SELECT tenant_id, provider_slug, id, 'succeeded', done, done FROM (SELECT *,"
        "        $1::timestamptz + external_id::int * 7919 % 1440 * interval '1 minute' AS done"
        "          FROM {schema}.connections WHERE external_id::int % 4 > 0) ran",
        at("00:00"),
    )
    in_tenant = await connections_by(world, tenant_id="acme", order="staleness", limit=400)

    found = await connections_by(world, order="staleness", limit=400)

    assert [one.id for one in found] == [one.id for one in in_tenant]
    first = await world.engine.connections.list(order="staleness", limit=5)
    assert [one.id for one in first] == [one.id for one in in_tenant[:5]]


async def test_a_list_continues_after_its_token_in_every_order(world: World) -> None:
    await fill_connections(world)
    for order in ("id", "external_id", "staleness"):
        first = await world.engine.connections.list(order=order, limit=10)
        second = await world.engine.connections.list(order=order, after=first.next_page, limit=10)
        both = await world.engine.connections.list(order=order, limit=20)
        assert [*first, *second] == both


async def test_the_last_run_is_told_before_its_plan_knows_it(world: World) -> None:
    connection = await world.connection(last_finished="11:00")

    [listed] = await world.engine.connections.list()

    assert listed.last_finished_at == at("11:00")
    assert (await world.engine.connections.get(connection.id)).last_finished_at == at("11:00")


async def test_connections_that_come_and_go_disturb_no_others(world: World) -> None:
    await fill_connections(world)
    before = {one.id for one in await world.engine.connections.list(limit=1000)}
    seen: list[UUID] = []
    gone: set[UUID] = set()
    page: Listing[Connection] = Listing([], "")

    while page.next_page is not None:
        page = await world.engine.connections.list(after=page.next_page or None, limit=5)
        seen += [one.id for one in page]
        await world.connection()  # its id may lie before or behind this page
        if page:
            gone.add(page[-1].id)  # the very row that the token names
            await world.engine.connections.delete(page[-1].id)

    assert len(seen) == len(set(seen))
    assert before - gone <= set(seen)


async def test_a_listing_is_a_list_that_ends_without_a_token(world: World) -> None:
    connection = await world.connection()

    for limit in (1, 2):
        listed = await world.engine.connections.list(limit=limit)
        assert [one.id for one in listed] == [connection.id]
        assert listed.next_page is None


async def test_a_limit_that_is_not_positive_is_refused(world: World) -> None:
    wrong: tuple[Any, ...] = (0, -1, True, 1.5, "7")
    for service in (world.engine.connections, world.engine.jobs, world.engine.signals):
        for limit in wrong:
            with pytest.raises(Invalid, match="limit"):
                await service.list(limit=limit)


async def test_a_token_of_ones_own_making_is_refused(world: World) -> None:
    for token in ("nonsense", "ä", "", "W10", "x" * 5000):
        with pytest.raises(ValueError, match="after is not a token"):
            await world.engine.connections.list(after=token)
    other = "WyJuYW1lIixudWxsLCIwMDAwMDAwMC0wMDAwLTAwMDAtMDAwMC0wMDAwMDAwMDAwMDAiXQ"
    with pytest.raises(ValueError, match="another listing"):
        await world.engine.connections.list(after=other)


async def test_a_filter_that_makes_no_sense_is_refused(world: World) -> None:
    nonsense: dict[str, Any] = {
        "order": "name",
        "status": "asleep",
        "tenant_id": "a\0b",
        "provider_slug": "",
        "external_id_prefix": "\ud800",
    }
    for name, value in nonsense.items():
        with pytest.raises(ValueError, match=name):
            await world.engine.connections.list(**{name: value})


async def fill_jobs(world: World) -> list[Connection]:
    connections = [await world.connection(tenant=TENANTS[n % 2]) for n in range(4)]
    for n in range(40):
        connection = connections[n % 4]
        status = ("succeeded", "failed", "cancelled")[n % 3]
        finished = at("10:00") + timedelta(minutes=n // 8)  # some finish together
        await world.job(connection, status=status, finished_at=finished)
    for connection in connections:
        await world.job(connection, job_type="full")
        await world.running_job(connection)
    return connections


async def jobs_by(world: World, wanted: JobFilter) -> list[Job]:
    found: list[Job] = []
    page: Listing[Job] = Listing([], "")
    while page.next_page is not None:
        page = await world.engine.jobs.list(**asdict(wanted), after=page.next_page or None, limit=3)
        found += page
    return found


async def test_pages_of_jobs_are_those_wanted_the_newest_first(world: World) -> None:
    connections = await fill_jobs(world)
    everything = await world.engine.jobs.list(limit=1000)
    assert len(everything) == 48

    for tenant in (None, *TENANTS):
        for status in (None, "queued", "running", "succeeded", "failed", "cancelled"):
            for job_type in (None, "full"):
                wanted = JobFilter(tenant, status=status, job_type=job_type)
                expected = [
                    job
                    for job in everything
                    if tenant in (None, job.tenant_id)
                    and status in (None, job.status)
                    and job_type in (None, job.job_type)
                ]
                assert await jobs_by(world, wanted) == expected, wanted

    history = await jobs_by(world, JobFilter(connection_id=connections[0].id))
    assert len(history) == 12
    ends = [(job.finished_at or at("23:00"), job.id) for job in history]
    assert all(newer > older for newer, older in pairwise(ends))
    foreign = JobFilter("birch", connection_id=connections[0].id)
    assert await jobs_by(world, foreign) == []


async def test_a_list_of_jobs_continues_after_its_token(world: World) -> None:
    [connection, *_] = await fill_jobs(world)
    asked: list[dict[str, Any]] = [{}, {"connection_id": connection.id}, {"tenant_id": "acme"}]
    for filters in asked:
        first = await world.engine.jobs.list(**filters, limit=5)
        second = await world.engine.jobs.list(**filters, after=first.next_page, limit=5)
        assert [*first, *second] == await world.engine.jobs.list(**filters, limit=10)


async def fill_signals(world: World) -> list[Connection]:
    connections = [await world.connection(tenant=TENANTS[n % 2]) for n in range(4)]
    for n in range(40):
        await add_signal(
            world,
            connections[n % 4],
            kind=("opened", "closed")[n // 4 % 2],
            received_at=at("10:00") + timedelta(minutes=n // 10),
        )
    return connections


async def add_signal(world: World, connection: Connection, **columns: Any) -> UUID:
    row: dict[str, Any] = {
        "id": uuid4(),
        "tenant_id": connection.tenant_id,
        "provider_slug": connection.provider_slug,
        "connection_id": connection.id,
        "kind": "opened",
        **columns,
    }
    places = ", ".join(f"${number}" for number in range(1, len(row) + 1))
    insert = f"INSERT INTO {{schema}}.signals ({', '.join(row)}) VALUES ({places})"
    await world.sql(insert, *row.values())
    id_: UUID = row["id"]
    return id_


async def signals_by(
    world: World, wanted: SignalFilter, *, newest_first: bool
) -> list[StoredSignal]:
    found: list[StoredSignal] = []
    page: Listing[StoredSignal] = Listing([], "")
    while page.next_page is not None:
        page = await world.engine.signals.list(
            **asdict(wanted), after=page.next_page or None, newest_first=newest_first, limit=3
        )
        found += page
    return found


async def test_pages_of_signals_are_those_wanted_by_when_they_were_stored(world: World) -> None:
    connections = await fill_signals(world)
    everything = await world.engine.signals.list(limit=1000)
    assert len(everything) == 40
    for wanted in (
        SignalFilter(),
        SignalFilter("acme"),
        SignalFilter(connection_id=connections[1].id),
        SignalFilter("acme", connections[1].id),
        SignalFilter(kind="closed"),
        SignalFilter("birch", kind="closed", since=at("10:01"), until=at("10:03")),
        SignalFilter(since=at("10:02")),
        SignalFilter(connection_id=connections[0].id, until=at("10:02")),
        SignalFilter(provider_slug="fax"),
    ):
        expected = [
            one
            for one in everything
            if wanted.tenant_id in (None, one.tenant_id)
            and wanted.connection_id in (None, one.connection_id)
            and wanted.provider_slug in (None, one.provider_slug)
            and wanted.kind in (None, one.kind)
            and (wanted.since is None or one.received_at >= wanted.since)
            and (wanted.until is None or one.received_at < wanted.until)
        ]
        for newest_first in (True, False):
            expected.sort(key=lambda one: (one.received_at, one.id), reverse=newest_first)
            found = await signals_by(world, wanted, newest_first=newest_first)
            assert found == expected, (wanted, newest_first)


async def test_signals_and_jobs_that_come_in_disturb_no_others(world: World) -> None:
    [connection, *_] = await fill_signals(world)
    await fill_jobs(world)
    signals = {one.id for one in await world.engine.signals.list(limit=1000)}
    jobs = {one.id for one in await world.engine.jobs.list(limit=1000)}
    seen_signals: list[UUID] = []
    seen_jobs: list[UUID] = []
    signal_page: Listing[StoredSignal] = Listing([], "")
    job_page: Listing[Job] = Listing([], "")

    while signal_page.next_page is not None or job_page.next_page is not None:
        if signal_page.next_page is not None:
            after = signal_page.next_page or None
            signal_page = await world.engine.signals.list(after=after, newest_first=True, limit=7)
            seen_signals += [one.id for one in signal_page]
        if job_page.next_page is not None:
            job_page = await world.engine.jobs.list(after=job_page.next_page or None, limit=7)
            seen_jobs += [one.id for one in job_page]
        await add_signal(world, connection)
        await world.job(connection, status="succeeded", finished_at=at("11:00"))

    assert len(seen_signals) == len(set(seen_signals))
    assert len(seen_jobs) == len(set(seen_jobs))
    assert signals <= set(seen_signals)
    assert jobs <= set(seen_jobs)
