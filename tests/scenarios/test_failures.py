"""After a retryable failure the job is queued anew; its wait is bounded and jittered."""

from datetime import timedelta

import pytest

from support.world import World, at
from syncline import Transient


@pytest.mark.parametrize(("roll", "wait_seconds"), [(0.0, 40), (0.5, 42), (0.75, 43)], ids=str)
async def test_backoff_bounded_with_jitter(world: World, roll: float, wait_seconds: int) -> None:
    """Failure Handling With Backoff / Backoff bounded with jitter"""
    connection = await world.connection()
    job_id = await world.job(connection, attempts=3)
    world.dice.value = roll

    await world.run_one(Transient("the provider is down"))

    job = await world.get_job(job_id)
    assert (job.status, job.attempts) == ("queued", 4)
    assert job.retry_after == at("12:00") + timedelta(seconds=wait_seconds)
    assert (job.error["class"], job.error["message"]) == ("Transient", "the provider is down")
    assert job.started_at == at("12:00")
