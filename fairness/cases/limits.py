"""A provider limits the application: nobody calls it, and nobody else notices (P5)."""

import asyncio

from fairness.cases import Case
from fairness.measure import Figure, count_between, excess_over_ramp
from fairness.plot import Plot, per_second
from fairness.stage import Call, Stage

CONNECTIONS = 600  # once a minute each: ten calls a second
USUAL_RATE = CONNECTIONS / 60
NOTICED_SECONDS = 1.0
UNTIL_ALL_RUN_SECONDS = 14  # what comes due before would be a burst, once a minute
APPLICATIONS = ("app-1", "app-2", "app-3")

OTHERS_ATTEMPTS = """
    SELECT coalesce(sum(attempts), 0) FROM syncline.sync_jobs job
      JOIN syncline.connections connection ON connection.id = job.connection_id
     WHERE connection.external_id <> ALL ($1::text[])
"""


async def one_limit_for_all(stage: Stage) -> list[Figure]:
    """One call is told to wait, by app-1 for the application; three are, by app-3 for each."""
    hint = 8.0 if stage.is_quick else 60.0
    for number, name in enumerate(APPLICATIONS):
        tenant = f"tenant-{number}"
        await stage.add_connections(
            CONNECTIONS, tenant, name, spread_seconds=60, after_seconds=UNTIL_ALL_RUN_SECONDS
        )
        await stage.remember_starts(name, USUAL_RATE)
    stage.start(3 if stage.is_quick else 4)
    for name in APPLICATIONS:
        await stage.until_called(name, 30)
    await stage.provider.order("app-1", "limit_next", times=1, seconds=hint, scope="app")
    await stage.provider.order("app-3", "limit_next", times=3, seconds=hint, scope="")
    await asyncio.sleep(hint + (6 if stage.is_quick else 20))
    calls = {name: await stage.provider.calls(name) for name in APPLICATIONS}
    limited = {name: [call for call in calls[name] if call.status == 429] for name in APPLICATIONS}
    said_at, also_said_at = limited["app-1"][0].at, limited["app-3"][2].at
    draw(stage, calls, said_at, hint)
    during = count_between(times(calls["app-2"]), said_at, said_at + hint)
    victims = [call.connection for name in APPLICATIONS for call in limited[name]]
    return [
        Figure("calls from 1 s after the limit", silence(calls["app-1"], said_at, hint), 0),
        Figure("after three limits", silence(calls["app-3"], also_said_at, hint), 0),
        Figure("limits met", len(victims), 4, 4),
        Figure(
            "others' rate ÷ usual",
            during / (hint * USUAL_RATE),
            at_most=1.1 if stage.is_quick else 1.05,
            at_least=0.9 if stage.is_quick else 0.95,
        ),
        Figure("attempts of others", await stage.value(OTHERS_ATTEMPTS, victims), 0),
        Figure(
            "starts above the ramp",
            excess_over_ramp(times(calls["app-1"]), said_at + hint, 1.05 * USUAL_RATE),
            at_most=1,
        ),
        Figure("calls after the pause", count_after(calls["app-1"], said_at + hint), at_least=20),
    ]


def silence(calls: list[Call], said_at: float, hint: float) -> int:
    """Return how many calls came while there should have been none."""
    return count_between(times(calls), said_at + NOTICED_SECONDS, said_at + hint)


def count_after(calls: list[Call], at: float) -> int:
    return sum(call.at >= at for call in calls)


def times(calls: list[Call]) -> list[float]:
    return [call.at for call in calls]


def draw(stage: Stage, calls: dict[str, list[Call]], said_at: float, hint: float) -> None:
    began = min(call.at for one in calls.values() for call in one)
    ended = max(call.at for one in calls.values() for call in one)
    stage.plots.append(
        Plot(
            "limit",
            "calls per second of three applications; app-1 says to wait, and app-3 to three",
            {name: per_second(times(one), began, ended) for name, one in calls.items()},
            [("closed", said_at - began, said_at + hint - began)],
        )
    )


CASES = (
    Case(
        "one limit for all",
        "after a 429 for the application, no worker calls it, and others go on",
        APPLICATIONS,
        one_limit_for_all,
    ),
)
