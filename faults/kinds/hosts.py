"""Workers on odd hosts: wrong clocks, small pools, poolers, and too many of them."""

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from faults.fleet import Member
from faults.kinds import kind
from faults.kinds.processes import EXIT_SECONDS, expect_exit
from faults.pooler import PgBouncer
from faults.stage import PATIENCE_SECONDS, NotFound, Stage
from faults.waiting import until

CALLS = 20  # calls that a worker must have made before it counts as working
TWO_HOURS = 7200
FAKETIME_LIBRARIES = ("*/faketime/libfaketime.so.1", "faketime/libfaketime.so.1")


async def work_for_a_while(
    stage: Stage,
    settings: Mapping[str, object] | None = None,
    *,
    prefix: Sequence[str] = ("-m",),
    environment: Mapping[str, str] | None = None,
) -> None:
    """Let an odd worker replace the others, then end it; it may leave no row running."""
    for other in stage.fleet.running("worker"):  # otherwise they might leave it nothing to do
        other.send(signal.SIGTERM)
    worker = await stage.fleet.start("worker", settings, prefix=prefix, environment=environment)
    await until_working(stage, worker)
    worker.send(signal.SIGTERM)
    expect_exit(stage, await worker.ended(within=EXIT_SECONDS), 0, worker.log.stem)
    await stage.count_left_running()


async def until_working(stage: Stage, worker: Member) -> None:
    def is_working() -> bool:
        return stage.provider.calls_by(worker.pid) >= CALLS

    await stage.until_its_turn(is_working, within=PATIENCE_SECONDS, what=f"{worker.log.stem} works")


def shifted(seconds: int) -> tuple[str, ...]:
    return ("-m", "faults.shifted", str(seconds))


@kind("a pool of 2 with concurrency 20", full=2, quick=0)
async def small_pool(stage: Stage) -> None:
    """Leases are renewed on a separate connection; nothing waits forever."""
    await work_for_a_while(stage, {"POOL_SIZE": 2, "EXECUTOR__CONCURRENCY": 20})


@kind("PgBouncer in transaction mode", full=2)
async def pooler(stage: Stage) -> None:
    """With the documented setting everything works through it."""
    async with PgBouncer(stage.database.url, stage.folder) as bouncer:
        await work_for_a_while(stage, {"PGBOUNCER": "true", "DATABASE_URL": bouncer.url})


@kind("a host two hours ahead", full=2, quick=0)
async def clock_ahead(stage: Stage) -> None:
    """Only the database's clock counts."""
    await work_for_a_while(stage, prefix=shifted(TWO_HOURS))


@kind("a host two hours behind", full=2, quick=0)
async def clock_behind(stage: Stage) -> None:
    """Only the database's clock counts."""
    await work_for_a_while(stage, prefix=shifted(-TWO_HOURS))


@kind("schedulers four hours apart", full=2, quick=0)
async def schedulers_apart(stage: Stage) -> None:
    """Both plan by the database's clock, and a new connection runs at once."""
    for process in stage.fleet.running("scheduler"):
        process.kill()
    for seconds in (TWO_HOURS, -TWO_HOURS):
        await stage.fleet.start("scheduler", prefix=shifted(seconds))
    await stage.until_synced(await stage.add_newcomer())


@kind("libfaketime, two hours ahead", full=2, quick=0)
async def faketime(stage: Stage) -> None:
    """The same, with every clock of the process shifted below Python."""
    environment = {
        "LD_PRELOAD": str(find_libfaketime()),
        "FAKETIME": "+2h",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    await work_for_a_while(stage, environment=environment)


def find_libfaketime() -> Path:
    for pattern in FAKETIME_LIBRARIES:
        for library in Path("/usr/lib").glob(pattern):
            return library
    raise NotFound("libfaketime")


@kind("twenty executors and two schedulers", full=1, quick=0)
async def crowd(stage: Stage) -> None:
    """They compete without a deadlock, and all exit cleanly."""
    number = 6 if stage.is_quick else 20 - len(stage.fleet.running("worker"))
    settings = {"POOL_SIZE": 3}
    crowd = [await stage.fleet.start("worker", settings) for _ in range(number)]

    def all_work() -> bool:
        return all(stage.provider.calls_by(worker.pid) for worker in crowd)

    await until(all_work, within=90, what="everyone in the crowd works")
    for worker in crowd:
        worker.send(signal.SIGTERM)
    for worker in crowd:
        expect_exit(stage, await worker.ended(within=30), 0, worker.log.stem)
    await stage.count_left_running()
