"""The link between a process and Postgres: cut, delayed, half-open."""

import asyncio
import signal

from faults.fleet import LEASE_SECONDS
from faults.kinds import kind
from faults.kinds.processes import (
    CLAIM,
    EXIT_SECONDS,
    SETTLE,
    TICK,
    TRAP_SECONDS,
    expect_exit,
)
from faults.provider import Stream
from faults.proxy import Moment
from faults.stage import Stage
from faults.waiting import until

SLOW_SECONDS = 3.0
MEGABIT = 125_000  # bytes
PADDING = 100_000
# How long a link is busy with each page; the first takes longer than a statement may.
PAGE_SECONDS = (11, 1, 1, 1, 1, 1)
MOST_SECONDS = 90
HALF_OPEN_SECONDS = 12.0


async def cut_at_commit(stage: Stage, moment: Moment, about: str) -> None:
    worker = stage.any("worker")
    sprung = worker.link.set_trap(moment, about)
    await stage.until_its_turn(sprung.done, within=TRAP_SECONDS, what=f"a COMMIT about {about}")


@kind("claim cut before COMMIT", full=10, quick=0)
async def cut_claim_before(stage: Stage) -> None:
    """Nothing was claimed; a later claim takes the jobs."""
    await cut_at_commit(stage, "before", CLAIM)


@kind("claim cut after COMMIT", full=6)
async def cut_claim_after(stage: Stage) -> None:
    """The worker does not know that it has the jobs; their leases lapse."""
    await cut_at_commit(stage, "after", CLAIM)


@kind("settle cut before COMMIT", full=15)
async def cut_settle_before(stage: Stage) -> None:
    """Nothing was stored; the same settle is tried again."""
    await cut_at_commit(stage, "before", SETTLE)


@kind("settle cut after COMMIT", full=15)
async def cut_settle_after(stage: Stage) -> None:
    """Everything was stored; trying again changes nothing."""
    await cut_at_commit(stage, "after", SETTLE)


@kind("tick cut before COMMIT", full=4)
async def cut_tick_before(stage: Stage) -> None:
    """Neither job nor metadata was stored; the next tick writes both."""
    await cut_tick(stage, "before")


@kind("tick cut after COMMIT", full=4)
async def cut_tick_after(stage: Stage) -> None:
    """Job and metadata are both stored, although the scheduler does not know."""
    await cut_tick(stage, "after")


async def cut_tick(stage: Stage, moment: Moment) -> None:
    traps = [one.link.set_trap(moment, TICK) for one in stage.fleet.running("scheduler")]
    newcomer = await stage.add_newcomer()

    def sprung() -> bool:
        return any(trap.done() for trap in traps)

    await until(sprung, within=TRAP_SECONDS, what="a tick that plans something")
    await stage.until_synced(newcomer)


@kind("all connections of a worker reset", full=12)
async def reset(stage: Stage) -> None:
    """Whatever was in progress is done again."""
    stage.any("worker").link.reset()


@kind("a half-open socket", full=3)
async def half_open(stage: Stage) -> None:
    """One connection falls silent; this is noticed, and work continues over others."""
    link = (await stage.busy_worker()).link
    async with asyncio.timeout(TRAP_SECONDS):
        wire = await link.half_open()
    await until(lambda: not link.has(wire), within=HALF_OPEN_SECONDS, what="the silence is noticed")


@kind("a worker cut off in mid-call past its lease", full=4)
async def cut_off(stage: Stage) -> None:
    """It closes its calls before other workers call for its connections."""
    stage.provider.trouble = "hangs"
    worker = await stage.busy_worker()
    cut_off_at = await stage.database.now()
    worker.link.silence()

    def has_hung_up() -> bool:
        return not stage.provider.in_flight(worker.pid)

    await until(has_hung_up, within=2 * LEASE_SECONDS, what="the cut-off worker hangs up")
    # Hanging calls of the other workers would keep their slots for seconds more, and then the
    # recovery of this one's jobs would be measured by them.
    stage.provider.trouble = None
    await stage.measure_recovery(cut_off_at)


@kind("a slow network", full=3, quick=0)
async def slow_down(stage: Stage) -> None:
    """Every message takes a tenth of a second; leases are still kept."""
    for process in stage.fleet.running():
        process.link.delay_seconds = 0.1
    await asyncio.sleep(SLOW_SECONDS)


@kind("large pages over 1 Mbit/s", full=1, quick=0)
async def one_megabit(stage: Stage) -> None:
    """Each is fetched and stored once, under its first lease; all others continue."""
    await store_large_pages(stage, MEGABIT)


@kind("large pages over 10 Mbit/s", full=2, quick=0)
async def ten_megabits(stage: Stage) -> None:
    """Each is fetched and stored once, under its first lease; all others continue."""
    await store_large_pages(stage, 10 * MEGABIT)


@kind("large pages over 100 Mbit/s", full=1, quick=0)
async def hundred_megabits(stage: Stage) -> None:
    """Each is fetched and stored once, under its first lease; all others continue."""
    await store_large_pages(stage, 100 * MEGABIT)


async def store_large_pages(stage: Stage, bytes_per_second: int) -> None:
    """Let one worker store pages at once that keep its link to Postgres busy for seconds."""
    worker = await stage.fleet.start("worker", connectors="faults.large_connector")
    worker.link.limit(bytes_per_second)
    names = []
    try:
        async with stage.costs_time_only("large"), stage.live_streams_go_on():
            for seconds in PAGE_SECONDS[:2] if stage.is_quick else PAGE_SECONDS:
                records = seconds * bytes_per_second // PADDING
                stream = Stream(records=records, page=records, padding=PADDING)
                names.append(await stage.add_stream("large", stream, slug="large-records"))
            await stage.until_synced(*names, within=MOST_SECONDS)
    finally:
        worker.send(signal.SIGTERM)
    expect_exit(stage, await worker.ended(within=EXIT_SECONDS), 0, worker.log.stem)
    await stage.database.remove_padding()
