"""What a tick did can be read from metrics, traces and the connection itself."""

from support.world import Logged, World, at

SCHEDULED = "sync_scheduler_jobs_scheduled_total"


async def test_metrics_recorded_for_scheduled_job(world: World, logged: Logged) -> None:
    """Observability Signals / Metrics recorded for scheduled job"""
    await world.connection(tenant="acme", last_finished="12:00")

    await world.tick("12:15", jitter_seconds=45)

    assert world.metric(SCHEDULED, provider_slug="github", tenant_id="acme") == 1
    assert world.metric("sync_scheduler_jitter_seconds_count") == 1
    assert world.metric("sync_scheduler_jitter_seconds_sum") == 45
    assert world.metric("sync_scheduler_backlog_gauge") == 1
    [plan] = logged("scheduler.job_scheduled")
    assert plan["jitter_seconds"] == 45
    assert plan["next_run_at"] == at("12:30").isoformat()


async def test_jitter_persistence_validated(world: World, logged: Logged) -> None:
    """Observability Signals / Jitter persistence validated"""
    connection = await world.connection(last_finished="12:00", sync={"interval_seconds": 900})

    await world.tick("12:15", jitter_seconds=45)

    assert (await world.pending(connection)).scheduled_at == at("12:15:45")
    assert (await world.sync_metadata(connection))["last_jitter_seconds"] == 45
    assert await world.next_run(connection) == at("12:30")
    [plan] = logged("scheduler.job_scheduled")
    assert plan["jitter_seconds"] == 45
    assert plan["scheduled_at"] == at("12:15:45").isoformat()
    assert plan["next_run_at"] == at("12:30").isoformat()
    await world.tick("12:16", jitter_seconds=100)
    assert (await world.sync_metadata(connection))["last_jitter_seconds"] == 45
