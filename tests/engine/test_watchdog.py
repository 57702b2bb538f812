"""Who holds the event loop is measured, counted and named in the log."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from support.fakes import eventually
from support.world import World
from syncline import SyncResult
from syncline.engine.watchdog import LONG_HOLD_SECONDS, Watchdog
from syncline.telemetry.engine import Telemetry

LONGEST = "sync_engine_event_loop_longest_hold_seconds"
HOLDS = "sync_engine_event_loop_holds_total"
ADD = """
    WITH added AS (
        INSERT INTO {schema}.connections (tenant_id, provider_slug, external_id)
        SELECT 'acme', 'github', n::text FROM generate_series(1, $1::int) n RETURNING id)
    INSERT INTO {schema}.sync_jobs (tenant_id, provider_slug, connection_id, scheduled_at)
    SELECT 'acme', 'github', id, '2025-01-01 11:00Z' FROM added
"""


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def compute(seconds: float) -> None:
    """Hold the interpreter itself: one call into C, twice as long as the last, until it is."""
    size, took = 1_000_000, 0.0
    while took < seconds:
        began = time.monotonic()
        sum(range(size))
        took, size = time.monotonic() - began, size * 2


@pytest.mark.parametrize("hold", [sleep, compute])
async def test_a_connector_that_holds_the_loop_is_named(
    world: World, caplog: pytest.LogCaptureFixture, hold: Callable[[float], None]
) -> None:
    """A connector blocks the loop for 400 ms, twice within a minute."""
    caplog.set_level(logging.WARNING, "syncline.engine")
    await world.sql(ADD, 2)
    left = 2

    def block(*_: object) -> SyncResult:
        nonlocal left
        hold(0.4)
        left -= 1
        if not left:
            asyncio.get_running_loop().call_later(0.1, world.engine.stop)
        return SyncResult()

    world.script(block, block)

    assert await world.engine.run(handle_signals=False, scheduler=False)

    longest = world.metric(LONGEST)
    assert longest is not None
    assert longest > 0.3
    assert (world.metric(HOLDS, provider_slug="github") or 0) >= 1
    told = [one for one in caplog.records if vars(one)["event"] == "engine.event_loop_held"]
    by_provider = [one for one in told if vars(one)["provider_slug"] == "github"]
    assert len(by_provider) == 1, "once a minute is enough"
    assert vars(by_provider[0])["seconds"] >= LONG_HOLD_SECONDS
    assert "provider_slug=github" in by_provider[0].getMessage()


async def test_a_loop_that_waits_is_not_held() -> None:
    telemetry = Telemetry()
    with Watchdog(lambda _: "", telemetry).watching():
        await asyncio.sleep(LONG_HOLD_SECONDS + 0.05)  # long enough to be a hold, if it were one
    longest = telemetry.registry.get_sample_value(LONGEST)
    holds = telemetry.registry.get_sample_value(HOLDS, {"provider_slug": ""}) or 0
    assert longest is not None
    assert bool(holds) == (longest >= LONG_HOLD_SECONDS)  # a busy machine may stand still


def watchdogs() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "syncline-watchdog"]


async def test_the_watch_ends_with_the_service(world: World) -> None:
    running: Any = asyncio.create_task(world.engine.run(handle_signals=False, scheduler=False))
    await eventually(lambda: bool(watchdogs()))
    watching = watchdogs()
    world.engine.stop()
    await running
    for thread in watching:
        await asyncio.to_thread(thread.join, 5)
        assert not thread.is_alive()
