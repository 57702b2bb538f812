from support.world import World, at
from syncline import SyncResult


async def test_a_new_connection_runs_at_the_first_tick(world: World) -> None:
    connection = await world.connection()
    world.connector.script.append(SyncResult(next_cursor={"page": 1}))

    report = await world.tick("12:00")
    assert report.scheduled == 1
    assert await world.run_due() == 1

    [job] = await world.jobs(connection)
    assert job.status == "succeeded"
    assert job.finished_at == at("12:00")
    assert (await world.sync_metadata(connection))["cursor"] == {"page": 1}
