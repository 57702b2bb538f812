"""A provider is down, our network is, or we were: who calls then, and how all resume (P6, P7)."""

import asyncio
import time
from datetime import datetime

from faults.waiting import until

from fairness.cases import Case
from fairness.measure import Figure, count_between, excess_over_ramp, seconds_until_rate
from fairness.plot import Plot, per_second
from fairness.stage import Call, Stage

MOST_PROBES = 60
USUAL_RATE = 20.0
NOTICED_SECONDS = 1.0  # a worker reads the gates twice a second
ALL = ("app-1", "app-2", "app-3", "app-4", "app-5")

OPENED_AT = "SELECT opened_at FROM syncline.gates WHERE provider_slug = $1"
RAMP_FROM = "SELECT ramp_from FROM syncline.gates WHERE provider_slug = $1"
RAMP_RATE = "SELECT ramp_rate FROM syncline.gates WHERE provider_slug = $1"
COUNT_OPEN = "SELECT count(*) FROM syncline.gates WHERE opened_at IS NOT NULL"
PROBED = "SELECT bool_and(probe_at > now() + make_interval(secs => $1)) FROM syncline.gates"
# Of jobs that started once workers knew; a run that was under way counts as usual.
ATTEMPTED = """
    SELECT count(*) FROM syncline.sync_jobs WHERE attempts > 0 AND started_at > to_timestamp($1)
"""


async def provider_down(stage: Stage) -> list[Figure]:
    """Faster than by default: a window of 6 s, the first probe after 3 s, down for 42 s."""
    count, down_seconds = (2_000, 10.0) if stage.is_quick else (10_000, 42.0)
    stage.settings = {
        "BREAKER__WINDOW_SECONDS": 6,
        "BREAKER__FIRST_PROBE_SECONDS": 1 if stage.is_quick else 3,
        "BREAKER__LONGEST_PROBE_SECONDS": 90,
    }
    await stage.add_connections(
        count, "tenant", "app-1", interval_seconds=60, spread_seconds=down_seconds
    )
    await stage.remember_starts("app-1", USUAL_RATE)
    stage.start(2 if stage.is_quick else 4)
    await stage.until_called("app-1", 100)
    down_at = await stage.provider.order("app-1", "behave", mode="fails")
    opened_at = await time_of(stage, OPENED_AT)
    await asyncio.sleep(max(0.0, down_at + down_seconds / 2 - time.time()))
    await stage.provider.order("app-1", "behave", mode="hangs")
    await asyncio.sleep(max(0.0, down_at + down_seconds - time.time()))
    attempted = await stage.value(ATTEMPTED, opened_at + NOTICED_SECONDS)
    up_at = await stage.provider.order("app-1", "behave", mode="answers")
    ramp_from = await time_of(stage, RAMP_FROM)
    rate = await stage.value(RAMP_RATE, "app-1")  # with what started before the outage
    await asyncio.sleep(12 if stage.is_quick else 36)
    calls = await stage.provider.calls("app-1")
    good = [call.at for call in calls if call.at >= up_at and call.status == 200]
    probes = count_between([call.at for call in calls], opened_at + NOTICED_SECONDS, good[0])
    draw_outage(stage, calls, down_at, up_at)
    return [
        Figure("calls before it was open", count_between_calls(calls, down_at, opened_at)),
        Figure("probes once open", probes, MOST_PROBES),
        Figure("attempts once open, by probes", attempted, probes),
        Figure("first good call", good[0] - up_at, unit="s"),
        Figure("usual rate after", seconds_until_rate(good, good[0], rate), 60, unit="s"),
        Figure("starts above the ramp", excess_over_ramp(good, ramp_from, rate), 1),
        Figure("calls after", len(good), at_least=USUAL_RATE * 10),
    ]


def count_between_calls(calls: list[Call], since: float, until_at: float) -> int:
    return count_between([call.at for call in calls], since, until_at)


async def time_of(stage: Stage, statement: str) -> float:
    """Wait until a gate has this time, and return it."""

    async def ask() -> datetime | None:
        rows = await stage.database.fetch(statement, "app-1")
        found: datetime | None = rows[0][0] if rows else None
        return found

    found: datetime = await until(ask, within=120, what=statement)
    return found.timestamp()


async def network_down(stage: Stage) -> list[Figure]:
    """All providers refuse; they come back just after a probe, when the next one is far."""
    first_probe = 2.0 if stage.is_quick else 30.0
    stage.settings = {
        "BREAKER__WINDOW_SECONDS": 6,
        "BREAKER__FIRST_PROBE_SECONDS": first_probe,
        "RATE_LIMIT__BASE_SECONDS": 1,
    }
    for name in ALL:
        await stage.add_connections(300, f"tenant-of-{name}", name, spread_seconds=60)
    stage.start(2)
    for name in ALL:
        await stage.until_called(name, 10)
    for name in ALL:
        await stage.provider.order(name, "behave", mode="refuses")

    async def all_open() -> bool:
        return bool(await stage.value(COUNT_OPEN) == len(ALL))

    await until(all_open, within=60, what="all five providers are taken for down")
    # Doubled waits would probe after 1, 3 and 7 of the first wait; equal ones after 1, 2, 3, 4.
    await asyncio.sleep(2.9 * first_probe)

    async def all_probed() -> bool:
        return bool(await stage.value(PROBED, 0.7 * first_probe))

    await until(all_probed, within=4 * first_probe + 10, what="a third probe of each")
    up_at = [await stage.provider.order(name, "behave", mode="answers") for name in ALL][-1]
    await asyncio.sleep(first_probe + 6)
    firsts = []
    for name in ALL:
        good = [call.at for call in await stage.provider.calls(name) if call.at > up_at]
        firsts.append(good[0] - up_at if good else float("inf"))
    return [
        Figure("providers taken for down", len(ALL)),
        Figure("the last resumed after", max(firsts), first_probe + 5, unit="s"),
    ]


async def fleet_away(stage: Stage) -> list[Figure]:
    """Nobody was there for five minutes; everything is due, and all workers start at once."""
    count, seconds = (2_000, 12) if stage.is_quick else (5_000, 25)
    await stage.remember_starts("app-1", USUAL_RATE, ago_seconds=300)
    await stage.add_connections(count, "tenant", "app-1", interval_seconds=300)
    stage.start(2 if stage.is_quick else 4)
    await stage.until_called("app-1")
    ramp_from = await time_of(stage, RAMP_FROM)
    rate = await stage.value(RAMP_RATE, "app-1")
    await asyncio.sleep(seconds / 2)
    stage.kill_one()
    await asyncio.sleep(seconds / 2)
    times = [call.at for call in await stage.provider.calls("app-1")]
    return [
        Figure("starts above the ramp", excess_over_ramp(times, ramp_from, rate), 1),
        Figure("calls", len(times), at_least=USUAL_RATE * seconds),
    ]


def draw_outage(stage: Stage, calls: list[Call], down_at: float, up_at: float) -> None:
    began, ended = calls[0].at, calls[-1].at
    good = [call.at for call in calls if call.status == 200]
    bad = [call.at for call in calls if call.status != 200]
    stage.plots.append(
        Plot(
            "outage",
            "calls per second of a provider that is down for a while",
            {
                "answered": per_second(good, began, ended),
                "failed": per_second(bad, began, ended),
            },
            [("down", down_at - began, up_at - began)],
        )
    )


CASES = (
    Case(
        "a provider down",
        "few probes and no attempts; then back to the usual rate along the ramp",
        ("app-1",),
        provider_down,
    ),
    Case("our network down", "everything resumes soon after its return", ALL, network_down),
    Case("the fleet away", "a backlog starts slowly", ("app-1",), fleet_away),
)
