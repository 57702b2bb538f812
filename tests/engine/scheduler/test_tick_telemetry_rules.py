"""S10 of the specification: what every tick tells."""

import pytest

from support.telemetry_events import Spans
from support.world import Logged, World, at

SCHEDULED = "sync_scheduler_jobs_scheduled_total"
JITTER = "sync_scheduler_jitter_seconds"
BACKLOG = "sync_scheduler_backlog_gauge"
DURATION = "sync_scheduler_tick_duration_ms"


async def test_metrics_of_a_tick(world: World) -> None:
    """S10: the four metrics, by their exact names and labels."""
    await world.connection(tenant="acme", last_finished="12:00")
    await world.connection(tenant="acme", last_finished="12:00")
    await world.connection(tenant="brix", last_finished="12:00")

    await world.tick("12:15", jitter_seconds=30)

    assert world.metric(SCHEDULED, provider_slug="github", tenant_id="acme") == 2
    assert world.metric(SCHEDULED, provider_slug="github", tenant_id="brix") == 1
    assert (world.metric(f"{JITTER}_count"), world.metric(f"{JITTER}_sum")) == (3, 90)
    assert world.metric(BACKLOG) == 3
    assert world.metric(f"{DURATION}_count") == 1


@pytest.mark.engine(telemetry={"tenant_label": False})
async def test_tenant_label_can_be_switched_off(world: World) -> None:
    """S10: where tenants are many, the counter goes without them."""
    await world.connection(tenant="acme", last_finished="12:00")

    await world.tick("12:15")

    assert world.metric(SCHEDULED, provider_slug="github") == 1


async def test_empty_tick_is_recorded_too(world: World, logged: Logged) -> None:
    """S10: gauge and duration are recorded at every tick, and every tick is logged."""
    await world.connection(last_finished="12:00")
    await world.tick("12:15")

    await world.tick("12:15:01")

    assert world.metric(BACKLOG) == 0
    assert world.metric(f"{DURATION}_count") == 2
    first, second = [
        [tick[key] for key in ("due", "scheduled", "skipped", "overdue")]
        for tick in logged("scheduler.tick")
    ]
    assert (first, second) == ([1, 1, 0, 1], [0, 0, 0, 0])
    assert all(tick["milliseconds"] > 0 for tick in logged("scheduler.tick"))
    assert all(tick["levelname"] == "INFO" for tick in logged("scheduler.tick"))


@pytest.mark.engine(scheduler={"batch_size": 1})
async def test_backlog_counts_all_that_are_overdue_before_any_is_scheduled(
    world: World, logged: Logged
) -> None:
    """S10: the gauge counts active connections whose slot is past and that have no job yet."""
    for _ in range(3):
        await world.connection(last_finished="11:00")
    await world.connection(last_finished="11:45:30", sync={"interval_seconds": 900})
    busy = await world.connection(last_finished="11:00")
    await world.job(busy, scheduled_at=at("13:00"))
    await world.connection(last_finished="11:00", status="paused")
    await world.connection(last_finished="11:59")

    report = await world.tick("12:00")

    assert (report.overdue, report.scheduled) == (3, 4)
    assert world.metric(BACKLOG) == 3
    assert logged("scheduler.tick")[0]["overdue"] == 3


async def test_backlog_counts_by_an_interval_just_edited(world: World) -> None:
    """S10: an edited interval counts at the tick that first sees it."""
    connection = await world.connection(last_finished="12:00", sync={"interval_seconds": 3600})
    await world.tick("12:01")
    await world.set_metadata(connection, "sync,interval_seconds", 300)

    assert (await world.tick("12:10")).overdue == 1


async def test_skips_are_counted(world: World, logged: Logged) -> None:
    """S10: `skipped` counts the due connections for which the guard holds a job."""
    connection = await world.connection(last_finished="11:00")
    await world.job(connection, scheduled_at=at("13:00"))

    report = await world.tick("12:00")

    assert (report.due, report.scheduled, report.skipped) == (1, 0, 1)
    assert logged("scheduler.tick")[0]["skipped"] == 1


async def test_each_scheduled_connection_is_traced(world: World, logged: Logged) -> None:
    """S10: a debug event inside the tick's span, and an event of that span, with every field."""
    connection = await world.connection(last_finished="10:00")
    spans = Spans()

    with spans.installed():
        async with world.another_engine() as traced:
            await traced.tick("11:07", jitter_seconds=30)

    expected = {
        "connection_id": str(connection.id),
        "jitter_seconds": 30,
        "base_interval_seconds": 900,
        "jitter_pct_min": 0.0,
        "jitter_pct_max": 0.2,
        "slot": at("11:00").isoformat(),
        "next_due_at": at("11:15").isoformat(),
        "scheduled_at": at("11:00:30").isoformat(),
        "next_run_at": at("11:15").isoformat(),
    }
    [record] = logged("scheduler.job_scheduled")
    assert record["levelname"] == "DEBUG"
    assert {key: record[key] for key in expected} == expected
    span = spans.only()
    assert span.name == "scheduler.tick"
    [event] = span.events
    assert dict(event.attributes or {}) == expected


async def test_empty_tick_has_a_span(world: World) -> None:
    """S10: one span a tick, also an empty one."""
    spans = Spans()

    with spans.installed():
        async with world.another_engine() as traced:
            await traced.tick()

    assert [span.name for span in spans.all()] == ["scheduler.tick"]
