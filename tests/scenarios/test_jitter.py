"""Jitter only ever delays, stays within its bounds, and is told."""

from datetime import timedelta

import pytest

from support.world import Logged, World, at

LOWEST, MIDDLE, HIGHEST = 0.0, 0.5, 0.999_999


@pytest.mark.parametrize(
    ("roll", "jitter_seconds"), [(LOWEST, 0), (MIDDLE, 90), (HIGHEST, 180)], ids=str
)
async def test_jitter_within_configured_bounds(
    world: World, logged: Logged, roll: float, jitter_seconds: int
) -> None:
    """Positive Jitter Application / Jitter within configured bounds"""
    late = await world.connection(last_finished="10:00")
    early = await world.connection(last_finished="10:30:40")
    world.dice.value = roll

    await world.tick("10:45")

    late_job, early_job = await world.pending(late), await world.pending(early)
    assert late_job.scheduled_at == at("10:45") + timedelta(seconds=jitter_seconds)
    assert early_job.scheduled_at == at("10:45:40") + timedelta(seconds=jitter_seconds)
    assert await world.next_run(late) == at("11:00")
    assert await world.next_run(early) == at("11:00:40")
    assert {plan["jitter_seconds"] for plan in logged("scheduler.job_scheduled")} == {
        jitter_seconds
    }
    assert {plan["next_due_at"] for plan in logged("scheduler.job_scheduled")} == {
        at("10:45").isoformat(),
        at("10:45:40").isoformat(),
    }


@pytest.mark.engine(scheduler={"jitter_pct_min": "0.05", "jitter_pct_max": "0.3"})
@pytest.mark.parametrize(("roll", "jitter_seconds"), [(LOWEST, 45), (HIGHEST, 270)], ids=str)
async def test_custom_jitter_range_respected(
    world: World, logged: Logged, roll: float, jitter_seconds: int
) -> None:
    """Positive Jitter Application / Custom jitter range respected"""
    connection = await world.connection(last_finished="12:00", sync={"interval_seconds": 900})
    world.dice.value = roll

    await world.tick("12:15")

    job = await world.pending(connection)
    assert job.scheduled_at == at("12:15") + timedelta(seconds=jitter_seconds)
    [plan] = logged("scheduler.job_scheduled")
    assert plan["jitter_seconds"] == jitter_seconds
    assert (plan["jitter_pct_min"], plan["jitter_pct_max"]) == (0.05, 0.3)
