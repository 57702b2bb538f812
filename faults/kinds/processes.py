"""Processes that are killed, stopped, frozen or told to end."""

import asyncio
import signal

from faults.fleet import GRACE_SECONDS, Member
from faults.kinds import kind
from faults.proxy import Moment
from faults.stage import Stage
from faults.waiting import until

# Text that appears only in the statement in question.
CLAIM = "SET status = 'running'"
SETTLE = "page.replaces"
TICK = "plan.slot_at"
TRAP_SECONDS = 15
AGAIN_SECONDS = 0.2  # signals that come closer together may count as one
EXIT_SECONDS = GRACE_SECONDS + 8


async def kill(stage: Stage, process: Member) -> None:
    killed_at = await stage.database.now()
    process.kill()
    await process.ended(within=5)
    await stage.measure_recovery(killed_at)


async def kill_at_commit(stage: Stage, process: Member, moment: Moment, about: str) -> None:
    sprung = process.link.set_trap(moment, about, process.kill)
    await stage.until_its_turn(sprung.done, within=TRAP_SECONDS, what=f"a COMMIT about {about}")
    killed_at = await stage.database.now()
    await process.ended(within=5)
    await stage.measure_recovery(killed_at)


@kind("kill -9 a worker at random", full=6, quick=0)
async def kill_worker(stage: Stage) -> None:
    """Its jobs run elsewhere within the lease plus five seconds."""
    await kill(stage, stage.any("worker"))


@kind("kill -9 a worker in mid-call", full=8)
async def kill_worker_in_mid_call(stage: Stage) -> None:
    """The call is made again elsewhere, and its page is stored once."""
    await kill(stage, await stage.busy_worker())


@kind("kill -9 a worker before its claim commits", full=3, quick=0)
async def kill_worker_before_claim(stage: Stage) -> None:
    """The jobs were never taken."""
    await kill_at_commit(stage, stage.any("worker"), "before", CLAIM)


@kind("kill -9 a worker after its claim committed", full=3)
async def kill_worker_after_claim(stage: Stage) -> None:
    """The jobs are leased to a dead process, and lapse."""
    await kill_at_commit(stage, stage.any("worker"), "after", CLAIM)


@kind("kill -9 a worker before its settle commits", full=3)
async def kill_worker_before_settle(stage: Stage) -> None:
    """Nothing of the page is stored; it is fetched again."""
    await kill_at_commit(stage, stage.any("worker"), "before", SETTLE)


@kind("kill -9 a worker after its settle committed", full=3, quick=0)
async def kill_worker_after_settle(stage: Stage) -> None:
    """The page is stored once, although the worker got no answer."""
    await kill_at_commit(stage, stage.any("worker"), "after", SETTLE)


@kind("kill -9 every worker at once", full=2, quick=0)
async def kill_all_workers(stage: Stage) -> None:
    """New workers take over what the dead ones held."""
    killed_at = await stage.database.now()
    for worker in stage.fleet.running("worker"):
        worker.kill()
    await stage.fleet.replace_missing()
    await stage.measure_recovery(killed_at)


@kind("kill -9 a scheduler", full=6)
async def kill_scheduler(stage: Stage) -> None:
    """The other scheduler schedules a new connection."""
    stage.any("scheduler").kill()
    await stage.until_synced(await stage.add_newcomer())


@kind("kill -9 a scheduler before its tick commits", full=4)
async def kill_scheduler_before_tick(stage: Stage) -> None:
    """Neither the job nor its metadata is stored; the next tick writes both."""
    await kill_scheduler_at_commit(stage, "before")


@kind("kill -9 a scheduler after its tick committed", full=4)
async def kill_scheduler_after_tick(stage: Stage) -> None:
    """Job and metadata are both stored, and the job runs."""
    await kill_scheduler_at_commit(stage, "after")


async def kill_scheduler_at_commit(stage: Stage, moment: Moment) -> None:
    """Set a trap for both schedulers: either may plan the new connection."""
    schedulers = stage.fleet.running("scheduler")
    traps = [one.link.set_trap(moment, TICK, one.kill) for one in schedulers]
    newcomer = await stage.add_newcomer()

    def sprung() -> bool:
        return any(trap.done() for trap in traps)

    await until(sprung, within=TRAP_SECONDS, what="a tick that plans something")
    for scheduler in schedulers:
        scheduler.link.trap = None
    await stage.fleet.replace_missing()
    await stage.until_synced(newcomer)


@kind("SIGTERM a worker under load", full=8)
async def terminate_worker(stage: Stage) -> None:
    """It exits with 0 and leaves no row running."""
    worker = await stage.busy_worker()
    worker.send(signal.SIGTERM)
    expect_exit(stage, await worker.ended(within=EXIT_SECONDS), 0, "a worker at SIGTERM")
    await stage.count_left_running()


@kind("SIGTERM a scheduler", full=5)
async def terminate_scheduler(stage: Stage) -> None:
    """It exits with 0; the other scheduler continues."""
    scheduler = stage.any("scheduler")
    scheduler.send(signal.SIGTERM)
    expect_exit(stage, await scheduler.ended(within=EXIT_SECONDS), 0, "a scheduler at SIGTERM")


@kind("SIGTERM a worker whose call does not end", full=4)
async def terminate_in_endless_call(stage: Stage) -> None:
    """After the grace the call is cancelled and its job released for another worker."""
    worker = await stage.order("never returns")
    worker.send(signal.SIGTERM)
    expect_exit(stage, await worker.ended(within=EXIT_SECONDS), 0, "a worker in an endless call")
    await stage.count_left_running()


@kind("SIGTERM a worker whose provider hangs", full=4)
async def terminate_while_provider_hangs(stage: Stage) -> None:
    """Its calls are closed before other workers repeat them."""
    stage.provider.trouble = "hangs"
    worker = await stage.busy_worker()
    worker.send(signal.SIGTERM)
    expect_exit(stage, await worker.ended(within=EXIT_SECONDS), 0, "a worker in a hanging call")
    await stage.count_left_running()


@kind("SIGTERM a worker twice", full=4)
async def terminate_worker_twice(stage: Stage) -> None:
    """It exits with 1 at once; the reaper returns its jobs."""
    worker = await stage.order("never returns")
    killed_at = await stage.database.now()
    while worker.is_running:
        worker.send(signal.SIGTERM)
        await asyncio.sleep(AGAIN_SECONDS)
    expect_exit(stage, await worker.ended(within=1), 1, "a worker at its second signal")
    await stage.measure_recovery(killed_at)


@kind("SIGTERM a worker while Postgres is away", full=3)
async def terminate_worker_in_outage(stage: Stage) -> None:
    """It still exits in time; its rows are left to the reaper."""
    worker = await stage.busy_worker()
    worker.link.refuse()
    worker.send(signal.SIGTERM)
    await worker.ended(within=EXIT_SECONDS)


@kind("SIGTERM while Postgres is silent", full=3)
async def terminate_in_silence(stage: Stage) -> None:
    """A worker and a scheduler that get no answers still exit in time."""
    processes = [await stage.busy_worker(), stage.any("scheduler")]
    for process in processes:
        process.link.silence()
        process.send(signal.SIGTERM)
    await asyncio.gather(*(process.ended(within=EXIT_SECONDS) for process in processes))


@kind("SIGINT a worker while it starts", full=4)
async def interrupt_start(stage: Stage) -> None:
    """It exits at once, without an error message."""
    worker = await stage.fleet.start("worker")
    # The moment of its start is random.
    await asyncio.sleep(stage.rng.uniform(0.2, 1.5))
    worker.send(signal.SIGINT)
    expect_exit(stage, await worker.ended(within=EXIT_SECONDS), 0, "a worker interrupted at start")
    await stage.count_left_running()


@kind("SIGSTOP a worker in mid-call past its lease", full=4)
async def freeze_worker(stage: Stage) -> None:
    """Its jobs run elsewhere; when it wakes up, it changes nothing."""
    worker = await stage.busy_worker()
    stopped_at = await stage.database.now()
    worker.send(signal.SIGSTOP)
    await stage.measure_recovery(stopped_at)
    worker.send(signal.SIGCONT)


@kind("SIGSTOP a worker inside a transaction", full=4)
async def freeze_worker_in_transaction(stage: Stage) -> None:
    """Postgres ends the transaction and frees its locks; the jobs run elsewhere."""
    worker = stage.any("worker")
    sprung = worker.link.set_trap("before", SETTLE, lambda: worker.send(signal.SIGSTOP), holds=True)
    await stage.until_its_turn(sprung.done, within=TRAP_SECONDS, what="a settle")
    await stage.measure_recovery(await stage.database.now())
    worker.send(signal.SIGCONT)


def expect_exit(stage: Stage, code: int, expected: int, who: str) -> None:
    if code != expected:
        stage.record.complain(f"{who} ended with {code} instead of {expected}")
