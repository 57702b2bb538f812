"""Real processes that are killed, frozen or told to stop, and a Postgres that goes away."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from support.processes import LEASE_SECONDS, Fleet, exit_code, until
from syncline import Engine, Settings
from syncline.testing.database import TemporaryServer

pytestmark = pytest.mark.process

RECOVERY_SECONDS = LEASE_SECONDS + 5


async def add_connection(fleet: Fleet, external_id: str, provider: str, **config: Any) -> Any:
    [row] = await fleet.sql(
        "INSERT INTO syncline.connections (tenant_id, provider_slug, external_id, config)"
        " VALUES ('acme', $1, $2, $3) RETURNING id",
        *(provider, external_id, json.dumps(config)),
    )
    return row["id"]


async def add_due_job(fleet: Fleet, external_id: str, provider: str, **config: Any) -> Any:
    """Add a connection with a job that is due, so that no scheduler is needed."""
    connection_id = await add_connection(fleet, external_id, provider, **config)
    [row] = await fleet.sql(
        "INSERT INTO syncline.sync_jobs (tenant_id, provider_slug, connection_id)"
        " VALUES ('acme', $1, $2) RETURNING id",
        *(provider, connection_id),
    )
    return row["id"]


async def job(fleet: Fleet, job_id: Any) -> Any:
    """Return the job's row, with the transaction that wrote it last."""
    [row] = await fleet.sql(
        "SELECT *, xmin::text AS written_by FROM syncline.sync_jobs WHERE id = $1", job_id
    )
    return row


async def status_is(fleet: Fleet, job_id: Any, status: str) -> bool:
    return bool((await job(fleet, job_id))["status"] == status)


async def victim_first(fleet: Fleet, workers: list[Any]) -> list[Any]:
    """Return the workers, the one first in which the job runs."""
    [called] = await until(lambda: fleet.ledger.entries("called"))
    return sorted(workers, key=lambda worker: worker.pid != called.pid)


async def test_a_dead_workers_job_runs_elsewhere_in_time(fleet: Fleet) -> None:
    workers = await fleet.start_workers(2)
    job_id = await add_due_job(fleet, "a", "fragile", first_call="os._exit")
    victim, other = await victim_first(fleet, workers)

    await exit_code(victim, within=5)
    await until(lambda: len(fleet.ledger.entries("called")) == 2, within=RECOVERY_SECONDS)

    await until(lambda: status_is(fleet, job_id, "succeeded"))
    assert [entry.pid for entry in fleet.ledger.entries("called")] == [victim.pid, other.pid]
    assert (await job(fleet, job_id))["attempts"] == 1
    assert await fleet.count("signals") == 1


async def test_a_connector_that_holds_the_interpreter_past_its_lease_is_fenced(
    fleet: Fleet,
) -> None:
    workers = await fleet.start_workers(2)
    job_id = await add_due_job(fleet, "a", "fragile", first_call="hold the interpreter")
    worker, _ = await victim_first(fleet, workers)

    await until(lambda: status_is(fleet, job_id, "succeeded"), within=RECOVERY_SECONDS)
    settled = await job(fleet, job_id)
    await until(lambda: fleet.ledger.entries("stopped"), what="the interpreter is let go")
    worker.terminate()  # it still settles what it believes to hold

    assert await exit_code(worker, within=10) == 0
    assert await job(fleet, job_id) == settled
    assert await fleet.count("signals") == 1


async def test_a_zombie_changes_nothing_and_stops_its_connector(fleet: Fleet) -> None:
    workers = await fleet.start_workers(2)
    job_id = await add_due_job(fleet, "a", "fragile", first_call="hang")
    zombie, _ = await victim_first(fleet, workers)

    zombie.send_signal(signal.SIGSTOP)
    await until(lambda: status_is(fleet, job_id, "succeeded"), within=RECOVERY_SECONDS)
    settled = await job(fleet, job_id)
    zombie.send_signal(signal.SIGCONT)
    [stopped] = await until(lambda: fleet.ledger.entries("stopped"), within=LEASE_SECONDS)
    zombie.terminate()

    assert stopped.pid == zombie.pid
    assert await exit_code(zombie, within=10) == 0
    assert await job(fleet, job_id) == settled
    assert await fleet.count("signals") == 1


async def test_sigterm_under_load_leaves_no_running_row(fleet: Fleet) -> None:
    """A stream ends after the page in hand; what it stored is what its cursor says."""
    for number in range(5):
        await add_due_job(fleet, f"hanging-{number}", "fragile", first_call="hang")
    for number in range(15):
        await add_due_job(fleet, f"{number}", "paged", total=10_000, page_seconds=0.05)
    for number in range(5):
        await add_due_job(fleet, f"s-{number}", "streamed", total=10_000, page_seconds=0.05)
    worker = fleet.start_worker(executor__shutdown_grace_seconds=0.5)
    await until(lambda: len(fleet.ledger.entries("called")) > 100)

    worker.terminate()

    assert await exit_code(worker, within=10) == 0
    assert await fleet.count("sync_jobs", "status = 'running'") == 0
    assert await fleet.count("sync_jobs", "status = 'queued' AND attempts = 0") == 25
    assert len(fleet.ledger.entries("stopped")) == 5
    streams = await fleet.sql(
        "SELECT j.cursor::int AS cursor, array_agg((s.payload -> 'number')::int ORDER BY s.id)"
        " AS stored FROM syncline.sync_jobs j JOIN syncline.signals s USING (connection_id)"
        " WHERE j.provider_slug = 'streamed' GROUP BY j.id"
    )
    assert len(streams) == 5
    for stream in streams:
        assert stream["stored"] == list(range(stream["cursor"]))


async def test_a_second_signal_exits_at_once_and_leaves_its_rows_to_the_reaper(
    fleet: Fleet,
) -> None:
    """What the reaper does with them, the death of a worker shows."""
    job_id = await add_due_job(fleet, "a", "fragile", first_call="hang")
    worker = fleet.start_worker(executor__shutdown_grace_seconds=60)
    await until(lambda: fleet.ledger.entries("called"))

    def is_gone_after_one_more() -> bool:
        worker.terminate()
        return worker.poll() is not None

    await until(is_gone_after_one_more, within=3)
    assert worker.returncode == 1
    assert await status_is(fleet, job_id, "running")


async def test_a_scheduler_killed_in_mid_tick_leaves_job_and_metadata_together(
    fleet: Fleet,
) -> None:
    """It dies when the jobs are inserted and the metadata is not."""
    ids = {await add_connection(fleet, f"{number}", "paged", total=5) for number in range(3)}
    async with held_up(fleet, "UPDATE ON syncline.connections"):
        scheduler = fleet.start_scheduler()
        await until(lambda: is_waiting_for_a_lock(fleet))
        scheduler.kill()
        scheduler.wait()
    await until(lambda: nobody_is_connected(fleet))

    assert await planned_connections(fleet) == await connections_with_jobs(fleet) == set()

    fleet.start_scheduler()
    await until(lambda: fleet.count("sync_jobs"))
    assert await planned_connections(fleet) == await connections_with_jobs(fleet) == ids


@asynccontextmanager
async def held_up(fleet: Fleet, write: str) -> AsyncIterator[None]:
    """Make a write of the engine wait until the end of this block."""
    session = await asyncpg.connect(fleet.url)
    try:
        await session.execute(f"""
            SELECT pg_advisory_lock(1);
            CREATE FUNCTION public.hold_up() RETURNS trigger LANGUAGE plpgsql
                AS 'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NEW; END';
            CREATE TRIGGER hold_up BEFORE {write} FOR EACH ROW EXECUTE FUNCTION public.hold_up();
        """)
        yield
        await session.execute("SELECT pg_advisory_unlock(1)")
        await session.execute("DROP FUNCTION public.hold_up() CASCADE")
    finally:
        await session.close()


async def is_waiting_for_a_lock(fleet: Fleet) -> bool:
    return bool(
        await fleet.sql(
            "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            " AND datname = current_database()"
        )
    )


async def nobody_is_connected(fleet: Fleet) -> bool:
    return not await fleet.sql(
        "SELECT FROM pg_stat_activity WHERE application_name LIKE 'syncline%'"
        " AND datname = current_database()"
    )


async def planned_connections(fleet: Fleet) -> set[Any]:
    rows = await fleet.sql(
        "SELECT id FROM syncline.connections WHERE metadata #> '{sync,next_run_at}' IS NOT NULL"
    )
    return {row["id"] for row in rows}


async def connections_with_jobs(fleet: Fleet) -> set[Any]:
    rows = await fleet.sql("SELECT connection_id FROM syncline.sync_jobs")
    return {row["connection_id"] for row in rows}


async def test_postgres_going_away_costs_time_only(tmp_path: Path) -> None:
    # What was committed must survive a crash of the server here.
    with TemporaryServer(server_settings={"synchronous_commit": "on"}) as server:
        fleet = Fleet(server.create_database(), tmp_path)
        async with Engine(Settings(database_url=fleet.url)) as engine:
            await engine.migrate()
        try:
            await live_through_two_outages(server, fleet)
        finally:
            fleet.stop()
            print(fleet.logs())


async def live_through_two_outages(server: TemporaryServer, fleet: Fleet) -> None:
    total, connections = 150, 6
    for number in range(connections):
        await add_connection(fleet, f"{number}", "paged", total=total, page_seconds=0.03)
    processes = [fleet.start_scheduler()]
    processes += await fleet.start_workers(2)  # which waits until all are up

    for end in (server.stop, server.kill):
        await until_called_again(fleet, times=20)
        await asyncio.to_thread(end)
        await asyncio.to_thread(server.start)
    await add_connection(fleet, "late", "paged", total=5)  # a scheduler still ticks

    await until(lambda: finished(fleet, connections * total + 5), within=40)
    assert all(process.poll() is None for process in processes)
    [stored] = await fleet.sql(
        "SELECT count(*) AS all, count(DISTINCT (connection_id, dedupe_key)) AS distinct"
        " FROM syncline.signals"
    )
    assert stored["all"] == stored["distinct"] == connections * total + 5
    async with Engine(Settings(database_url=fleet.url)) as engine:
        assert await engine.verify() == []


async def until_called_again(fleet: Fleet, *, times: int) -> None:
    before = len(fleet.ledger.entries("called"))
    await until(lambda: len(fleet.ledger.entries("called")) >= before + times)


async def finished(fleet: Fleet, expected: int) -> bool:
    pending = "status IN ('queued', 'running') AND scheduled_at <= now()"
    return await fleet.count("signals") >= expected and not await fleet.count("sync_jobs", pending)
