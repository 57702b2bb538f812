"""How pages are checked beside the event loop."""

import asyncio
import threading
from collections.abc import Iterator

from support.runs import make_run
from support.world import at
from syncline import Signal, SyncResult
from syncline.engine.worker.attempt import PageChecker
from syncline.settings import ExecutorSettings

LIMITS = ExecutorSettings().page_limits


def signals(count: int, size: int = 10) -> list[Signal]:
    return [Signal("seen", at("11:00"), {"text": "x" * size}) for _ in range(count)]


async def test_large_pages_are_checked_one_at_a_time() -> None:
    """Many busy threads take the interpreter from the event loop, each for 5 ms in turn."""
    checker = PageChecker(LIMITS)
    results = [SyncResult(signals(2000)), SyncResult(signals(4, size=400_000))] * 3
    runs = [make_run() for _ in results]
    checks = [
        asyncio.ensure_future(checker.check(result, None, own))
        for result, own in zip(results, runs, strict=True)
    ]
    alive = set()
    while not all(check.done() for check in checks):
        alive.add(sum(own.threads.alive for own in runs))
        await asyncio.sleep(0)

    assert [check.result().signal_count for check in checks] == [2000, 4] * 3
    assert alive <= {0, 1}
    assert 1 in alive


async def test_a_page_that_is_slow_to_come_holds_up_no_other() -> None:
    """Its signals come out of the connector's own code, which may wait for anything."""
    checker = PageChecker(LIMITS)
    let_go = threading.Event()

    def slowly() -> Iterator[Signal]:
        let_go.wait(30)
        yield from signals(1)

    slow = asyncio.ensure_future(checker.check(SyncResult(slowly()), None, make_run()))
    other = await checker.check(SyncResult(signals(2000)), None, make_run())
    was_slow = not slow.done()
    let_go.set()

    assert (await slow).signal_count == 1
    assert other.signal_count == 2000
    assert was_slow
