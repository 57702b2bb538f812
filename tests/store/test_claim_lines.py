"""What a claim reads: its lines, the gaps between them, and the backoffs that have ended."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from support.sessions import Actor, actor
from support.world import World, at
from syncline import SyncResult
from syncline.policy.lines import Line, Lines, Look
from syncline.store.queue import backoffs, claims
from syncline.store.queue.claims import ClaimedRows, ClaimRequest, Lease

pytestmark = pytest.mark.usefixtures("no_deadlock")

NOON = at("12:00")
A_SECOND_AGO = NOON - timedelta(seconds=1)


async def claim_once(
    claimer: Actor,
    lines: Lines,
    *,
    limit: int = 10,
    from_start: bool = True,
    ended: list[UUID] | None = None,
    chosen: int = 0,
    now: datetime | None = NOON,
) -> ClaimedRows:
    """Claim at noon unless told otherwise, and remember what was seen."""
    columns = lines.columns(from_start=from_start)
    request = ClaimRequest(["github", "tickets"], limit, 1, False, columns, ended or [], chosen)
    found = await claims.claim(claimer.tx, request, Lease(uuid4(), now, timedelta(seconds=30)))
    lines.learn(found.looks)
    return found


async def add(
    world: World, priority: int, scheduled_at: str = "11:00", *, provider: str = "github"
) -> UUID:
    connection = await world.connection(provider=provider)
    return await world.job(connection, priority=priority, scheduled_at=at(scheduled_at))


async def ended_at_noon(claimer: Actor) -> list[UUID]:
    providers = ["github", "tickets"]
    found = await backoffs.ended(claimer.tx, providers, now=NOON, limit=100, read=100)
    return list(found)


async def test_priorities_are_found_one_after_the_other_and_nothing_overtakes(
    world: World,
) -> None:
    """E1: what is below an unknown priority waits for the claim that knows it."""
    lines = Lines(["github", "tickets"])
    async with actor(world) as claimer:
        order = [
            await add(world, 10),
            await add(world, 7, provider="tickets"),
            await add(world, 5),
            await add(world, 3, provider="tickets"),
            await add(world, -4),
        ]
        claimed: list[UUID] = []
        for _ in range(4):
            found = await claim_once(claimer, lines)
            claimed += [row["id"] for row in sorted(found.jobs, key=lambda row: row["place"])]
    assert claimed == order


async def test_a_known_priority_does_not_overtake_one_that_is_hidden_by_an_unknown_one(
    world: World,
) -> None:
    """A gap shows its highest priority only; what stands below that one may come first."""
    lines = Lines(["github", "tickets"])
    async with actor(world) as claimer:
        await add(world, 3, provider="tickets")
        await claim_once(claimer, lines)
        last = await add(world, 3, provider="tickets")
        order = [await add(world, 10), await add(world, 5), last]

        claimed = [[row["id"] for row in (await claim_once(claimer, lines)).jobs] for _ in order]
    assert claimed == [[id_] for id_ in order]


async def test_a_priority_between_known_ones_is_seen_at_once(world: World) -> None:
    lines = Lines(["github", "tickets"])
    async with actor(world) as claimer:
        for priority in (10, 0):
            await add(world, priority)
            await claim_once(claimer, lines)
        between, below = await add(world, 5), await add(world, 0)

        assert [row["id"] for row in (await claim_once(claimer, lines)).jobs] == [between]
        assert [row["id"] for row in (await claim_once(claimer, lines)).jobs] == [below]


async def test_jobs_scheduled_ahead_hide_none_of_less_priority(world: World) -> None:
    ahead = await world.connection()
    await world.job(ahead, priority=5, scheduled_at=at("12:30"))
    due = await world.connection()
    await world.job(due, priority=0, scheduled_at=at("11:00"))
    world.script(SyncResult())

    assert await world.run_due("12:00") == 1

    assert [job.status for job in await world.jobs(due)] == ["succeeded"]
    assert [job.status for job in await world.jobs(ahead)] == ["queued"]


async def test_a_line_begins_with_its_first_job_but_not_within_the_last_second(
    world: World,
) -> None:
    """Jobs that come now are stamped a little earlier than they are seen."""
    lines = Lines(["github", "tickets"])
    first = await add(world, 0, "11:00")
    await add(world, 0, "11:30")
    await add(world, 5, "12:30")
    async with actor(world) as claimer:
        await claim_once(claimer, lines)
        found = await claim_once(claimer, lines)
    begins = {look.line.priority: look.line for look in found.looks}
    assert (begins[0].begins_at, begins[0].begins_with) == (at("11:00"), first)
    assert (begins[5].begins_at, begins[5].begins_with) == (A_SECOND_AGO, UUID(int=0))


async def test_a_job_that_came_before_its_line_began_is_found_by_the_next_look(
    world: World,
) -> None:
    lines = Lines(["github", "tickets"])
    await add(world, 0, "11:30")
    async with actor(world) as claimer:
        await claim_once(claimer, lines)
        earlier, now = await add(world, 0, "11:00"), await add(world, 0, "12:00")

        found = await claim_once(claimer, lines, from_start=False)
        assert [row["id"] for row in found.jobs] == [now]

        found = await claim_once(claimer, lines, from_start=True)
        assert [row["id"] for row in found.jobs] == [earlier]


async def test_an_empty_line_begins_a_second_ago_and_says_how_long_the_look_took(
    world: World,
) -> None:
    lines = Lines(["github", "tickets"])
    await add(world, 0)
    async with actor(world) as claimer:
        await claim_once(claimer, lines)
        [look] = (await claim_once(claimer, lines)).looks
        [timed] = (await claim_once(claimer, lines, now=None)).looks
    assert look.is_empty
    assert timed.is_empty
    assert look.line.begins_at == A_SECOND_AGO
    assert look.seconds == 0, "or a simulation would depend on the machine's speed"
    assert timed.seconds > 0


async def test_an_offered_job_is_claimed_only_while_it_is_due(world: World) -> None:
    """What a process knew may have changed since."""
    waits: list[dict[str, Any]] = [
        {"retry_after": at("11:59")},
        {"retry_after": at("12:01")},
        {"retry_after": at("11:59"), "scheduled_at": at("12:01")},
        {"retry_after": at("11:59"), "status": "cancelled", "finished_at": at("11:59")},
        {"retry_after": at("11:59"), "lapses": 2},
        {},
    ]
    jobs = [
        await world.job(await world.connection(), **{"scheduled_at": at("11:00"), **columns})
        for columns in waits
    ]
    other = await world.job(
        await world.connection(provider="other"), retry_after=at("11:59"), scheduled_at=at("11:00")
    )
    lines = Lines(["github", "tickets"])
    async with actor(world) as claimer:
        assert await ended_at_noon(claimer) == [jobs[0]]
        found = await claim_once(claimer, lines, ended=[*jobs, other])
    # The last but one is poison, of which a claim takes one; the last has no backoff.
    assert {row["id"] for row in found.jobs} == {jobs[0], jobs[4], jobs[5]}


async def test_an_ended_backoff_goes_to_one_of_two_claimers(world: World) -> None:
    job = await world.job(
        await world.connection(), retry_after=at("11:59"), scheduled_at=at("11:00")
    )
    async with actor(world) as first, actor(world) as second:
        known = [await ended_at_noon(claimer) for claimer in (first, second)]
        assert known == [[job], [job]]
        lines = Lines(["github", "tickets"])

        assert len((await claim_once(first, lines, ended=[job])).jobs) == 1
        assert len((await claim_once(second, lines, ended=[job])).jobs) == 0
        await first.commit()
        assert len((await claim_once(second, lines, ended=[job])).jobs) == 0


async def test_an_ended_backoff_waits_for_the_run_of_its_connection(world: World) -> None:
    connection = await world.connection()
    lines = Lines(["github", "tickets"])
    async with actor(world) as claimer:
        await world.job(connection, job_type="full", scheduled_at=at("11:00"))
        await claim_once(claimer, lines)
        await claimer.commit()
        await claimer.begin()
        job = await world.job(connection, retry_after=at("11:59"), scheduled_at=at("11:00"))

        assert (await claim_once(claimer, lines, ended=[job])).jobs == []


async def test_of_two_jobs_of_a_connection_a_claim_takes_the_first(world: World) -> None:
    """Whether ready or in backoff before."""
    connection = await world.connection()
    await world.job(connection, job_type="full", scheduled_at=at("11:30"))
    job = await world.job(connection, retry_after=at("11:59"), scheduled_at=at("11:00"))
    async with actor(world) as claimer:
        lines = Lines(["github", "tickets"])
        found = await claim_once(claimer, lines, ended=[job])
    assert [row["id"] for row in found.jobs] == [job]


async def test_chosen_jobs_come_before_what_stands_first_and_no_job_comes_twice(
    world: World,
) -> None:
    """P8: a claim takes what a tenant within its share has due, and fills up with the flood."""
    first, second = await add(world, 5, "10:00"), await add(world, 0, "10:30")
    late, later = await add(world, 0, "11:30"), await add(world, 0, "11:40")
    lines = Lines(["github", "tickets"])
    lines.learn([Look(Line("github", priority, NOON, UUID(int=0)), True, 0) for priority in (5, 0)])
    async with actor(world) as claimer:
        found = await claim_once(claimer, lines, limit=2, ended=[late, second, later], chosen=1)

    by_place = sorted(found.jobs, key=lambda row: int(row["place"]))
    assert [row["id"] for row in by_place] == [late, first]
