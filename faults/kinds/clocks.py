"""Clocks that jump during work."""

import signal
from datetime import datetime, timedelta

import asyncpg

from faults.database_clock import RESTORE, shift_clock
from faults.kinds import kind
from faults.kinds.database import ACCEPT_LOGINS, REFUSE_LOGINS
from faults.kinds.hosts import TWO_HOURS, shifted, until_working
from faults.kinds.processes import EXIT_SECONDS, expect_exit
from faults.stage import PATIENCE_SECONDS, Stage
from faults.waiting import TooLate, until

AHEAD = timedelta(days=1)
TICKS_SECONDS = 5

# What would not be checked, claimed or reaped for hours.
PUT_OFF = """
    SELECT c.external_id, c.look_at, j.status, j.scheduled_at, j.retry_after, j.lease_expires_at
      FROM syncline.connections c LEFT JOIN syncline.sync_jobs j
        ON j.connection_id = c.id AND j.status IN ('queued', 'running')
     WHERE c.status = 'active'
       AND greatest(c.look_at, CASE j.status WHEN 'queued' THEN j.scheduled_at END,
                    j.retry_after, j.lease_expires_at) > clock_timestamp() + interval '1 hour'
"""


@kind("the database's clock a day ahead for a moment", full=3, loses_claims=True)
async def jump(stage: Stage) -> None:
    """Whatever was planned, claimed or leased at the later time is corrected."""
    began_at = await stage.database.now()
    await set_clock(stage, shift_clock(f"{AHEAD.days} days"))
    try:
        await until_all_claimed_ahead(stage, began_at + AHEAD)
        (await stage.busy_worker()).kill()  # its jobs are leased until that day
    finally:
        await set_clock(stage, RESTORE)
    await stage.measure_return(await stage.database.now())
    await stage.until_all_go_on()

    async def nothing_is_put_off() -> bool:
        return not await stage.database.fetch(PUT_OFF)

    try:
        await until(nothing_is_put_off, within=TICKS_SECONDS, what="nothing waits for that day")
    except TooLate:
        put_off = await stage.database.fetch(PUT_OFF)
        stage.record.complain(f"{len(put_off)} wait for that day: {dict(put_off[0])}")


async def set_clock(stage: Stage, statement: str) -> None:
    """Change the clock while no other session is open: no transaction may see two times."""
    person = await asyncpg.connect(stage.database.url)

    async def is_alone() -> bool:
        return not await stage.database.terminate_all_others()

    try:
        await person.execute(REFUSE_LOGINS)
        await until(is_alone, within=PATIENCE_SECONDS, what="the end of every session")
        await person.execute(statement)
    finally:
        await person.execute(ACCEPT_LOGINS)
        await person.close()
        stage.database.close()  # its statements were planned with the other clock


async def until_all_claimed_ahead(stage: Stage, ahead_at: datetime) -> None:
    """Wait until every live stream and a new one have run at the later time."""
    newcomer = await stage.add_newcomer()
    names = stage.provider.live()

    async def all_claimed() -> bool:
        return len(await stage.database.claimed_since(names, ahead_at)) == len(names)

    await until(all_claimed, within=PATIENCE_SECONDS, what="every stream runs ahead of time")
    await stage.until_synced(newcomer)


@kind("a host's clock jumps two hours, and back", full=2, quick=0)
async def jump_on_host(stage: Stage) -> None:
    """A worker and a scheduler continue: only the database's clock counts."""
    for process in stage.fleet.running():
        process.send(signal.SIGTERM)
    worker = await stage.fleet.start("worker", prefix=shifted(TWO_HOURS))
    scheduler = await stage.fleet.start("scheduler", prefix=shifted(TWO_HOURS))
    for _ in range(2):
        await until_working(stage, worker)
        for process in (worker, scheduler):
            process.send(signal.SIGUSR1)
        await stage.until_synced(await stage.add_newcomer())
    for process in (worker, scheduler):
        process.send(signal.SIGTERM)
        code = await process.ended(within=EXIT_SECONDS)
        expect_exit(stage, code, 0, process.log.stem)
