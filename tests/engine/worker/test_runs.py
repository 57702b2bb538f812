"""What runs in a process, and what becomes of a job that it lost and claimed once more."""

import asyncio
from uuid import UUID

from syncline.engine.worker.runs import Run, Runs
from syncline.policy.outcome import Interrupted
from syncline.store.queue.claims import Claim


async def test_a_job_that_was_lost_and_claimed_again_keeps_its_place() -> None:
    runs = Runs(on_ended=lambda _: None, on_room=lambda: None)
    lost = begin(runs, lapses=2)
    runs.lose([lost.claim.id])
    again = begin(runs, lapses=3)

    runs.leave(lost)

    assert runs.unsettled() == [again]
    assert (len(runs), runs.poison_jobs, runs.slots_taken) == (1, 1, 1)
    runs.end(again, Interrupted())
    runs.settled([again])
    runs.leave(again)
    assert (len(runs), runs.poison_jobs, runs.slots_taken) == (0, 0, 0)


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
        place=1,
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
        config=None,
        metadata=None,
        stored_cursor=None,
        is_first=False,
        has_credentials=False,
        is_large=False,
        seconds_due=0,
        seconds_late=None,
        slot_ahead=None,
    )
