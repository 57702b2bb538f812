"""E11 of the specification: what every run tells."""

import asyncio
from typing import Any

import pytest

from support.fakes import HeldRun, eventually
from support.telemetry_events import Spans
from support.world import Logged, World, at
from syncline import RateLimited, Signal, SyncResult, Transient

NEWS = Signal("opened", at("11:00"), {})


def counted(world: World, name: str, **labels: str) -> float | None:
    return world.metric(f"sync_executor_{name}", provider_slug="github", **labels)


async def test_success_is_counted(world: World) -> None:
    """E11: claimed, succeeded, signals stored, run seconds, claim delay."""
    await world.job(await world.connection(), scheduled_at=at("11:59:50"))
    world.script(SyncResult([NEWS, NEWS]))

    await world.run_due()

    assert counted(world, "jobs_claimed_total") == 1
    assert counted(world, "jobs_succeeded_total") == 1
    assert counted(world, "signals_stored_total") == 2
    assert counted(world, "run_seconds_count", outcome="succeeded") == 1
    assert counted(world, "claim_delay_seconds_count") == 1
    assert counted(world, "claim_delay_seconds_sum") == 10


async def test_claim_delay_counts_from_when_a_retried_job_was_due(world: World) -> None:
    """E11: start minus due, where due is the later of `scheduled_at` and `retry_after`."""
    connection = await world.connection()
    await world.job(connection, scheduled_at=at("10:00"), retry_after=at("11:59:57"))
    world.script(SyncResult())

    await world.run_due()

    assert counted(world, "claim_delay_seconds_sum") == 3


@pytest.mark.engine(rate_limit={"jitter_factor": 0})
async def test_failures_are_counted_by_class(world: World, logged: Logged) -> None:
    """E11: failed by class, rate-limit events, backoff seconds."""
    for _ in range(3):
        await world.job(await world.connection())
    world.script(Transient("down"), RateLimited(retry_after_seconds=60), ValueError("bug"))

    await world.run_due()

    for error_class in ("Transient", "RateLimited", "Unexpected"):
        assert counted(world, "jobs_failed_total", error_class=error_class) == 1
    assert counted(world, "rate_limits_total") == 1
    assert counted(world, "rate_limit_wait_seconds_total") == 60
    assert counted(world, "backoff_seconds_count") == 3
    assert counted(world, "backoff_seconds_sum") == 70
    assert counted(world, "run_seconds_count", outcome="failed") == 3
    assert len(logged("executor.job_failed")) == 3


async def test_reaped_jobs_are_counted(world: World) -> None:
    """E11: leases that lapsed."""
    await world.running_job(await world.connection())
    world.clock.advance(31)
    world.script(SyncResult())

    await world.run_due()

    assert counted(world, "jobs_reaped_total") == 1


@pytest.mark.engine(executor={"shutdown_grace_seconds": 0})
async def test_released_jobs_are_counted(world: World) -> None:
    """E11: jobs given back by a shutdown."""
    await world.job(await world.connection())
    run = HeldRun(SyncResult())
    world.script(run)
    running = asyncio.create_task(world.engine.run(handle_signals=False, scheduler=False))
    await run.started.wait()

    world.engine.stop()
    await running

    assert counted(world, "jobs_released_total") == 1


async def test_queue_is_measured(world: World) -> None:
    """E11: queue depth by provider, and the age of what has been due longest."""
    await world.job(await world.connection(provider="gitlab"), scheduled_at=at("11:58"))
    await world.job(await world.connection(provider="gitlab"), retry_after=at("11:59"))
    await world.job(await world.connection(provider="gitlab"), scheduled_at=at("13:00"))
    running = asyncio.create_task(world.engine.run(handle_signals=False, scheduler=False))

    def depth() -> float | None:
        return world.metric("sync_executor_queue_depth", provider_slug="gitlab")

    await eventually(lambda: depth() is not None)
    world.engine.stop()
    await running

    assert depth() == 2
    assert world.metric("sync_executor_queue_age_seconds") == 120


async def test_each_run_is_one_span(world: World) -> None:
    """E11: with the job it belongs to; a failed run's span says so."""
    connection = await world.connection()
    job_id = await world.job(connection)
    world.script(Transient("down"), SyncResult())
    spans = Spans()

    with spans.installed():
        async with world.another_engine() as traced:
            await traced.run_due()
            await traced.run_due("12:01")

    failed, succeeded = (span for span in spans.all() if span.name == "executor.run")
    for span in (failed, succeeded):
        attributes: Any = span.attributes
        assert span.name == "executor.run"
        assert attributes["job_id"] == str(job_id)
        assert attributes["connection_id"] == str(connection.id)
        assert (attributes["provider_slug"], attributes["job_type"]) == ("github", "incremental")
    assert (failed.status.is_ok, succeeded.status.is_ok) == (False, True)


async def test_lateness_counts_from_the_slot(world: World) -> None:
    """E11: jitter, queue and backoff together; a job without a slot has no lateness."""
    slot = {"slot_at": at("11:55"), "scheduled_at": at("11:58")}
    await world.job(await world.connection(), **slot)
    await world.job(await world.connection())
    world.script(SyncResult(), SyncResult())

    await world.run_due()

    assert counted(world, "lateness_seconds_count") == 1
    assert counted(world, "lateness_seconds_sum") == 300


async def test_claim_and_settlement_have_spans_beside_the_run(world: World) -> None:
    """Spans of batches stand beside those of runs, not around them."""
    await world.job(await world.connection())
    world.script(SyncResult([NEWS]))
    spans = Spans()

    with spans.installed():
        async with world.another_engine() as traced:
            await traced.run_due()

    found = {span.name: span for span in spans.all()}
    assert {"executor.claim", "executor.run", "executor.settle"} <= found.keys()
    assert [span.parent for span in found.values()] == [None] * len(found)
    assert (found["executor.settle"].attributes or {})["jobs"] == 1
