"""People who change connections while their jobs run."""

from faults.kinds import kind
from faults.provider import Stream
from faults.stage import PATIENCE_SECONDS, Stage
from faults.waiting import until


async def in_mid_run(stage: Stage, name: str) -> None:
    def is_in_flight() -> bool:
        return name in stage.provider.in_flight()

    await until(is_in_flight, within=PATIENCE_SECONDS, what=f"{name} in mid-run")


@kind("a connection deleted in mid-run", full=6)
async def delete(stage: Stage) -> None:
    """The run stores nothing; none of its rows comes back."""
    name = await stage.add_stream("doomed", Stream(per_second=5))
    await in_mid_run(stage, name)
    stage.provider.streams[name].freeze()
    stage.deleted.append(stage.ids[name])
    await stage.engine.connections.delete(stage.ids[name])


@kind("a connection paused in mid-run, then resumed", full=8)
async def pause(stage: Stage) -> None:
    """The run stores its page; nothing follows until the connection is resumed."""
    name = stage.rng.choice(stage.provider.live())
    await in_mid_run(stage, name)
    connection_id = stage.ids[name]
    await stage.engine.connections.pause(connection_id, reason="a fault")

    async def is_at_rest() -> bool:
        pending = (
            "SELECT count(*) FROM syncline.sync_jobs"
            " WHERE connection_id = $1 AND status IN ('queued', 'running')"
        )
        return not await stage.database.value(pending, connection_id)

    await until(is_at_rest, within=PATIENCE_SECONDS, what=f"{name} at rest")
    await stage.engine.connections.resume(connection_id)
    await stage.sync_now(name)


@kind("a connection re-intervalled in mid-run", full=8)
async def change_interval(stage: Stage) -> None:
    """The run continues, and its cursor is kept."""
    name = stage.rng.choice(stage.provider.live())
    await in_mid_run(stage, name)
    await stage.engine.connections.set_interval(stage.ids[name], stage.rng.randrange(60, 600))


@kind("a sync triggered in mid-run", full=8)
async def trigger(stage: Stage) -> None:
    """Exactly one more run follows; no page is lost to the conflict."""
    name = stage.rng.choice(stage.provider.live())
    await in_mid_run(stage, name)
    await stage.sync_now(name)
