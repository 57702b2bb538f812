"""What the read side shows, read from a real database: next runs, attempts and troubles."""

from datetime import timedelta
from uuid import UUID

from support.world import World, at

NOW = at("12:00")
SECOND = timedelta(seconds=1)


async def test_next_runs_are_queued_jobs_and_connections_that_come_due(world: World) -> None:
    new = await world.connection()
    in_backoff = await world.connection()
    await world.job(in_backoff, scheduled_at=at("11:00"), retry_after=at("12:30"), attempts=2)
    waiting = await world.connection()
    await world.job(waiting, scheduled_at=at("12:10"))
    planned = await world.connection()
    await look_at(world, planned.id, "12:20")
    running = await world.connection()
    await world.running_job(running)
    await world.connection(status="paused")

    runs = (await world.engine.stats.activity()).next_runs

    assert [(run.connection_id, run.due_at, run.attempts) for run in runs] == [
        (new.id, NOW, 0),
        (waiting.id, at("12:10"), 0),
        (planned.id, at("12:20"), 0),
        (in_backoff.id, at("12:30"), 2),
    ]


async def test_recent_attempts_are_those_that_started_the_last_ones_first(world: World) -> None:
    connection = await world.connection(tenant="birch")
    old = await world.job(
        connection, status="failed", started_at=at("10:00"), finished_at=at("11:00")
    )
    running = await world.running_job(connection)
    await world.job(await world.connection(), scheduled_at=at("12:10"))

    recent = (await world.engine.stats.activity()).recent

    assert [attempt.job_id for attempt in recent] == [running, old]
    assert {attempt.tenant_id for attempt in recent} == {"birch"}


async def test_troubles_are_who_waits_for_a_person_and_who_fails_over_and_over(
    world: World,
) -> None:
    ill = await world.connection(status="error")
    often, once = await world.connection(), await world.connection()
    later = NOW + 60 * SECOND
    await world.job(once, retry_after=later, attempts=1)
    await world.job(often, retry_after=later, attempts=9, error='{"message": "busy"}')
    await world.connection(status="paused")

    troubles = (await world.engine.stats.overview()).troubles

    assert [(trouble.connection_id, trouble.status) for trouble in troubles] == [
        (ill.id, "error"),
        (often.id, "backoff"),
        (once.id, "backoff"),
    ]
    assert (troubles[1].reason, troubles[1].retry_after) == ({"message": "busy"}, later)


async def test_every_list_is_as_long_as_asked_for(world: World) -> None:
    for _ in range(3):
        connection = await world.connection(status="error")
        await world.job(connection, status="failed", started_at=NOW, finished_at=NOW)
        await world.job(await world.connection(), retry_after=NOW, attempts=1)
        await world.sql(
            "INSERT INTO {schema}.signals (tenant_id, provider_slug, connection_id, kind, payload)"
            " VALUES ('acme', 'github', $1, 'note', jsonb_build_object('text', repeat('x', 9999)))",
            connection.id,
        )

    activity = await world.engine.stats.activity(limit=2)
    overview = await world.engine.stats.overview(limit=2)

    assert (len(activity.recent), len(activity.next_runs), len(activity.signals)) == (2, 2, 2)
    assert len(overview.troubles) == 4  # two of each sort
    assert {len(signal.preview) for signal in activity.signals} == {300}
    assert activity.now == overview.now == NOW


async def look_at(world: World, connection_id: UUID, time: str) -> None:
    await world.sql(
        "UPDATE {schema}.connections SET look_at = $2 WHERE id = $1", connection_id, at(time)
    )
