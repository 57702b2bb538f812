"""What runs in a process, and what becomes of a job that it lost and claimed once more."""

import asyncio
import gc
import weakref

from support.runs import begin, make_runs
from syncline.engine.worker.slots import Slots
from syncline.policy.outcome import Interrupted


async def test_a_job_that_was_lost_and_claimed_again_keeps_its_place() -> None:
    runs, slots = make_runs(), Slots(["github"], 2)
    lost = begin(runs, slots, lapses=2)
    runs.lose([lost.claim.id])
    again = begin(runs, slots, lapses=3)

    runs.leave(lost)

    assert runs.unsettled() == [again]
    assert (len(runs), runs.poison_jobs, slots.taken) == (1, 1, 1)
    again.end(Interrupted())
    again.settled()
    runs.leave(again)
    assert (len(runs), runs.poison_jobs, slots.taken) == (0, 0, 0)


async def test_a_run_that_is_over_is_freed_without_the_garbage_collector() -> None:
    """Thousands of cycles a second would make the collector walk the host's objects for nothing."""
    runs = make_runs()
    run = begin(runs, Slots(["github"], 1), lapses=0)
    task, freed = weakref.ref(run.task or asyncio.current_task()), weakref.ref(run)
    gc.disable()
    try:
        run.cancel()
        run.end(Interrupted())
        runs.leave(run)
        run.settled()
        del run
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (task(), freed()) == (None, None)
    finally:
        gc.enable()
