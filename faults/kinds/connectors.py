"""Connectors and providers that do what they should not."""

import asyncio

from faults.connector import EXIT_CODE
from faults.kinds import kind
from faults.kinds.processes import expect_exit
from faults.stage import Stage

TROUBLE_SECONDS = 3.0
LAPSES_ALLOWED = 5


@kind("a connector exits its process", full=4)
async def exit_process(stage: Stage) -> None:
    """The worker is gone at once; its jobs run elsewhere."""
    ordered_at = await stage.database.now()
    worker = await stage.order("exits the process")
    worker.may_end = True
    expect_exit(stage, await worker.ended(within=5), EXIT_CODE, "the worker")
    await stage.measure_recovery(ordered_at)


@kind("a connection that kills every worker", full=1, quick=0)
async def poison(stage: Stage) -> None:
    """After five lapses in a row its connection is in error, and no more workers die."""
    while (name := await stage.add_newcomer()) in stage.blocking:
        pass
    deaths, taken_by = 0, stage.provider.order(name, "exits the process")
    while await is_active(stage, name):
        if taken_by.done():
            deaths += 1
            stage.fleet.by_pid(taken_by.result()).may_end = True
            taken_by = stage.provider.order(name, "exits the process")
            await stage.fleet.replace_missing()
        await asyncio.sleep(0.05)
    if deaths != LAPSES_ALLOWED:
        stage.record.complain(f"{deaths} workers died of one connection")
    stage.provider.forgive(name)
    await stage.engine.connections.resume(stage.ids[name])
    await stage.sync_now(name)


async def is_active(stage: Stage, name: str) -> bool:
    status = "SELECT status FROM syncline.connections WHERE id = $1"
    return bool(await stage.database.value(status, stage.ids[name]) == "active")


@kind("a connector holds the interpreter", full=3)
async def hold_interpreter(stage: Stage) -> None:
    """No lease is renewed; lapsed jobs run elsewhere, and late results are not stored."""
    ordered_at = await stage.database.now()
    await stage.order("holds the interpreter")
    await stage.measure_recovery(ordered_at)


@kind("a connector calls sys.exit", full=4)
async def exit_interpreter(stage: Stage) -> None:
    """The attempt fails; the worker lives."""
    await stage.order("exits the interpreter")


@kind("a connector raises KeyboardInterrupt", full=4, quick=0)
async def interrupt(stage: Stage) -> None:
    """The attempt fails; the worker lives."""
    await stage.order("raises KeyboardInterrupt")


@kind("a connector raises BaseException", full=4)
async def raise_base_exception(stage: Stage) -> None:
    """The attempt fails; the worker lives."""
    await stage.order("raises BaseException")


@kind("a connector never returns", full=3)
async def never_return(stage: Stage) -> None:
    """It is stopped after max_run_seconds and tried again."""
    await stage.order("never returns")


@kind("a blocking connector never returns", full=2)
async def block_for_ever(stage: Stage) -> None:
    """Its thread cannot be stopped: the slot stays taken, the job runs again."""
    name = stage.rng.choice([one for one in stage.provider.live() if one in stage.blocking])
    await stage.order("never returns", name)


@kind("a provider limits rates", full=3)
async def limit_rates(stage: Stage) -> None:
    """Every connection waits as long as the provider asks."""
    await trouble(stage, "limits")


@kind("a provider fails", full=3, quick=0)
async def fail(stage: Stage) -> None:
    """Every connection backs off, and continues afterwards."""
    await trouble(stage, "fails")


@kind("a provider hangs", full=2, quick=0)
async def hang(stage: Stage) -> None:
    """For a while, unanswered calls may take every slot; then work continues."""
    await trouble(stage, "hangs")


@kind("a provider talks nonsense", full=2)
async def talk_nonsense(stage: Stage) -> None:
    """Nothing of it is stored, and no cursor moves."""
    await trouble(stage, "talks nonsense")


async def trouble(stage: Stage, what: str) -> None:
    stage.provider.trouble = what
    await asyncio.sleep(TROUBLE_SECONDS)
    stage.provider.trouble = None
