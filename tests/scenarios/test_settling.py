"""A page is stored with the cursor it led to, and its job tells how it ended."""

from support.world import World, at
from syncline import Signal, SyncResult


async def test_signals_persisted(world: World) -> None:
    """Execute Connector Sync / Signals persisted"""
    connection = await world.connection(tenant="T")
    job_id = await world.job(connection)
    opened = Signal("opened", at("11:00"), {"number": 1})
    closed = Signal("closed", at("11:30"), {"number": 1, "by": "Ada"}, dedupe_key="1-closed")

    await world.run_one(SyncResult([opened, closed]))

    stored = await world.signals(connection)
    assert [(s.kind, s.occurred_at, s.payload, s.dedupe_key) for s in stored] == [
        ("opened", at("11:00"), {"number": 1}, None),
        ("closed", at("11:30"), {"number": 1, "by": "Ada"}, "1-closed"),
    ]
    owners = {(s.tenant_id, s.provider_slug, s.connection_id, s.job_id) for s in stored}
    assert owners == {("T", "github", connection.id, job_id)}


async def test_next_cursor_stored_on_success(world: World) -> None:
    """Cursor Persistence / Next cursor stored on success"""
    connection = await world.connection()
    await world.job(connection)

    await world.run_one(SyncResult(next_cursor={"since": "2024-10-30T00:00:00Z"}))

    stored = (await world.sync_metadata(connection))["cursor"]
    assert stored == {"since": "2024-10-30T00:00:00Z"}


async def test_success_updates_status_and_timestamps(world: World) -> None:
    """Job Finalization / Success updates status and timestamps"""
    connection = await world.connection()
    job_id = await world.job(connection)

    async with world.during_run():
        world.clock.set(at("12:00:20"))

    job = await world.get_job(job_id)
    assert job.status == "succeeded"
    assert (job.started_at, job.finished_at) == (at("12:00"), at("12:00:20"))
