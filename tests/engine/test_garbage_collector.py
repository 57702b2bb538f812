"""The collector's settings, while engines own the process and afterwards."""

import asyncio
import gc

import pytest

from support.fakes import eventually
from support.world import World
from syncline.engine.garbage_collector import RARE_COLLECTIONS, THRESHOLDS


async def test_a_process_of_its_own_collects_garbage_seldom_while_it_runs(world: World) -> None:
    before = gc.get_threshold()
    running = asyncio.create_task(world.engine.run())
    await eventually(lambda: gc.get_threshold() != before)

    assert gc.get_freeze_count() > 0
    world.engine.stop()
    await running
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)


async def test_a_cancelled_run_puts_the_collector_back(world: World) -> None:
    before = gc.get_threshold()
    running = asyncio.create_task(world.engine.run())
    await eventually(lambda: gc.get_threshold() != before)

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)


async def test_a_host_keeps_its_own_collector(world: World) -> None:
    before = gc.get_threshold()
    running = asyncio.create_task(world.engine.run(handle_signals=False))

    async def is_registered() -> bool:
        return bool(await world.engine.workers.list())

    await eventually(is_registered)
    seen = gc.get_threshold(), gc.get_freeze_count()
    world.engine.stop()
    await running
    await world.run_due()
    assert seen == (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)


def test_the_last_engine_out_puts_the_collector_back() -> None:
    before = gc.get_threshold()
    for _ in range(2):  # one pair after the other
        RARE_COLLECTIONS.__enter__()
        RARE_COLLECTIONS.__enter__()
        RARE_COLLECTIONS.__exit__()
        assert gc.get_threshold() == THRESHOLDS
        RARE_COLLECTIONS.__exit__()
        assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)


def test_an_error_inside_puts_the_collector_back() -> None:
    before = gc.get_threshold()
    with pytest.raises(KeyError), RARE_COLLECTIONS:
        raise KeyError
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)
