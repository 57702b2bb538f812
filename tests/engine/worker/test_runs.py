"""What runs in a process, and what becomes of a job that it lost and claimed once more."""

import asyncio
from uuid import UUID

from syncline.engine.worker.runs import Run, Runs
from syncline.engine.worker.settle import Settler
from syncline.engine.worker.settle_queue import SettleQueue
from syncline.policy.outcome import Interrupted
from syncline.store.queue.claims import Claim
from syncline.telemetry.engine import Telemetry

NO_SETTLER: Settler = None  # type: ignore[assignment]  # nothing ends here


async def test_a_job_that_was_lost_and_claimed_again_keeps_its_place() -> None:
    runs = make_runs()
    lost = begin(runs, lapses=2)
    runs.lose([lost.claim.id])
    again = begin(runs, lapses=3)

    runs.leave(lost)

    assert runs.unsettled() == [again]
    assert (len(runs), runs.poison_jobs, runs.slots_taken) == (1, 1, 1)
    again.end(Interrupted())
    again.settled()
    runs.leave(again)
    assert (len(runs), runs.poison_jobs, runs.slots_taken) == (0, 0, 0)


def make_runs() -> Runs:
    """Return runs whose settle queue nobody reaches."""
    telemetry = Telemetry(tenant_label=False, cell="test")
    settle_queue = SettleQueue(NO_SETTLER, telemetry, lease_seconds=30)
    return Runs(settle_queue, asyncio.Event(), asyncio.Event())


def begin(runs: Runs, *, lapses: int) -> Run:
    """Begin a run whose connector never ends."""
    run = runs.add(claimed(lapses), leased_since=0)
    task = asyncio.get_running_loop().create_task(asyncio.Event().wait())
    runs.begin(run, task)  # type: ignore[arg-type]  # what it returns is nobody's business
    return run


def claimed(lapses: int) -> Claim:
    one = UUID(int=1)
    return Claim(
        lease_token=one,
        id=one,
        tenant_id="acme",
        provider_slug="github",
        connection_id=one,
        job_type="incremental",
        priority=0,
        attempts=0,
        lapses=lapses,
        cursor=None,
        external_id="1",
        connection_status="active",
        is_first=False,
        slot_ahead=None,
    )
