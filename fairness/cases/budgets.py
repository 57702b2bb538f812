"""A budget is shared by all workers, kept in every window, and nearly used up (P1 to P4)."""

import asyncio
from collections import Counter

from faults.waiting import until

from fairness.cases import Case
from fairness.measure import Figure, count_between, fullest_window
from fairness.plot import Plot, per_second, step_line
from fairness.stage import Stage

ATTEMPTS = "SELECT coalesce(sum(attempts), 0)::int FROM syncline.sync_jobs"
STORED = """
    SELECT count(*) AS stored, count(DISTINCT (connection_id, payload ->> 'number')) AS distinct
      FROM syncline.signals
"""
UNFINISHED = """
    SELECT count(*) FROM syncline.connections
     WHERE coalesce((metadata #>> '{sync,cursor}')::int, 0) < $1
"""
WAITING = """
    SELECT connection_id::text FROM syncline.sync_jobs
     WHERE status = 'queued' AND scheduled_at <= now() ORDER BY scheduled_at DESC, id DESC LIMIT 1
"""
ASKED = 4
SETTINGS = '[[budgets]]\nscope = "{scope}"\ncalls = {calls}\nper = "{per:g}s"\n'


async def shared_budget(stage: Stage) -> list[Figure]:
    """An hour in a minute: 5,000 calls, 10,000 connections, four workers, and now and then a kill.

    The provider limits as well, so that one call too many is answered with a 429.
    """
    calls, per, windows = (300, 10.0, 2.0) if stage.is_quick else (5_000, 60.0, 2.1)
    await set_budget(stage, "app-1", calls, per)
    await stage.provider.order("app-1", "limit_to", calls=round(1.01 * calls), per_seconds=per)
    await stage.add_connections(1_000 if stage.is_quick else 10_000, "tenant", "app-1")
    stage.start(2 if stage.is_quick else 4)
    await stage.until_called("app-1")
    loop = asyncio.get_running_loop()
    kill_after = windows * per / 2 if stage.is_quick else per / 3
    await stage.kill_every(kill_after, until_at=loop.time() + windows * per)
    is_named = await explain_names_budget(stage)
    made = await stage.provider.calls("app-1")
    times = [call.at for call in made]
    began, ended = times[0], times[0] + windows * per
    stage.plots.append(
        Plot(
            "budget",
            "calls per second under a budget, with workers killed now and then",
            {
                "calls": per_second(times, began, ended),
                "budget": list(step_line(calls / per, ended - began)),
            },
        )
    )
    return [
        Figure("calls in the fullest window", fullest_window(times, per), 1.01 * calls),
        Figure("limits met", sum(call.status == 429 for call in made), 0),
        Figure(
            "share used while work waits",
            count_between(times, began, ended) / (windows * calls),
            at_least=0.85 if stage.is_quick else 0.95,
        ),
        Figure("explain names the budget", int(is_named), at_least=1),
    ]


async def explain_names_budget(stage: Stage) -> bool:
    """Ask why a job waits; a moment with room for a call is no reason to wait."""
    for _ in range(ASKED):
        if "budget" in await stage.command("explain", await stage.value(WAITING)):
            return True
    return False


async def streams_in_mid_run(stage: Stage) -> list[Figure]:
    """Streams of many pages share a budget that ends again and again."""
    connections, pages = (10, 20) if stage.is_quick else (40, 40)
    calls, per = (100, 10.0) if stage.is_quick else (300, 15.0)
    stage.settings["SCHEDULER__DEFAULT_INTERVAL_SECONDS"] = 3600  # one run each
    await set_budget(stage, "archive", calls, per)
    await stage.provider.order("archive", "have", pages=pages, latency_seconds=0.01)
    await stage.add_connections(connections, "tenant", "archive", interval_seconds=3600)
    stage.start(2)

    async def all_done() -> bool:
        return bool(await stage.value(UNFINISHED, pages) == 0)

    await until(all_done, within=connections * pages / calls * per * 1.3 + 20, what="all pages")
    made = await stage.provider.calls("archive")
    asked = Counter((call.connection, call.page) for call in made)
    stored = (await stage.database.fetch(STORED))[0]
    return [
        Figure("pages", connections * pages),
        Figure("pages fetched again", sum(asked.values()) - len(asked), 0),
        Figure("signals lost", connections * pages - stored["distinct"], 0, 0),
        Figure("signals doubled", stored["stored"] - stored["distinct"], 0),
        Figure("attempts", await stage.value(ATTEMPTS), 0),
        Figure("fullest window", fullest_window([call.at for call in made], per), 1.01 * calls),
    ]


async def set_budget(stage: Stage, scope: str, calls: int, per: float) -> None:
    """Write the budget into the settings of all workers."""
    text = SETTINGS.format(scope=scope, calls=calls, per=per)
    await asyncio.to_thread((stage.folder / "syncline.toml").write_text, text)


CASES = (
    Case(
        "a shared budget",
        "never more calls in any window, and nearly all of them used",
        ("app-1",),
        shared_budget,
    ),
    Case(
        "streams in mid-run",
        "a budget that ends keeps the pages and counts no attempt",
        ("archive",),
        streams_in_mid_run,
    ),
)
