"""One customer's flood is not everybody's delay, and costs no time either (P8)."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime

from faults.waiting import until

from fairness.cases import Case
from fairness.measure import Figure, percentile
from fairness.plot import Plot
from fairness.stage import Stage

SMALL_TENANTS, CONNECTIONS_EACH = 200, 6  # once a minute each: twenty jobs a second
LATEST_SECONDS = 2.0
ADD_SMALL_TENANTS = """
    INSERT INTO syncline.connections (tenant_id, provider_slug, external_id, last_finished_at)
    SELECT 'small-' || n % $1, 'nap', n::text, now() - n * interval '60 seconds' / ($1 * $2)
      FROM generate_series(1, $1::int * $2::int) n
"""
# Without shares, what came during the flood runs after it: the work is done when both are.
LEFT = """
    SELECT count(*) FROM syncline.sync_jobs
     WHERE status IN ('queued', 'running') AND (tenant_id LIKE 'flood-%' OR scheduled_at <= $1)
"""
SPAN = """
    SELECT extract(epoch FROM min(started_at)), extract(epoch FROM max(finished_at)),
           max(finished_at) AS ended_at
      FROM syncline.sync_jobs WHERE tenant_id LIKE 'flood-%'
"""
ALL_DONE = """
    SELECT extract(epoch FROM max(finished_at)) FROM syncline.sync_jobs WHERE scheduled_at <= $1
"""
BEFORE_ALL = datetime(2000, 1, 1, tzinfo=UTC)
STARTS = """
    SELECT extract(epoch FROM started_at)::float8 AS at,
           extract(epoch FROM started_at - scheduled_at)::float8 AS late
      FROM syncline.sync_jobs
     WHERE tenant_id LIKE 'small-%' AND started_at IS NOT NULL
       AND scheduled_at BETWEEN to_timestamp($1) AND to_timestamp($2)
     ORDER BY 1
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How long a flood took, and how late the others started meanwhile."""

    makespan: float
    lateness: Sequence[tuple[float, float]]  # when, and how late

    @property
    def p99(self) -> float:
        return percentile([late for _, late in self.lateness], 0.99)


async def floods(stage: Stage) -> list[Figure]:
    """The same at the same time: one flood, five of them, and one without fair shares."""
    jobs = 6_000 if stage.is_quick else 100_000
    async with AsyncExitStack() as stages:
        five = await stages.enter_async_context(stage.beside("five"))
        today = await stages.enter_async_context(stage.beside("today"))
        today.settings["FAIRNESS__ENABLED"] = "false"
        one_of, five_of, today_of = await asyncio.gather(
            flood(stage, 1, jobs), flood(five, 5, jobs), flood(today, 1, jobs)
        )
    stage.plots.append(
        Plot(
            "flood",
            "how late small tenants start beside a flood, in seconds",
            {
                "with fair shares": one_of.lateness,
                "without": today_of.lateness,
                "with fair shares, five floods": five_of.lateness,
            },
        )
    )
    longest = None if stage.is_quick else 1.02  # a short flood shows nothing
    # In the short form all cases run at once, and the 99th of a hundred starts is the worst one.
    latest = 2.5 * LATEST_SECONDS if stage.is_quick else LATEST_SECONDS
    return [
        Figure("small tenants' p99, one flood", one_of.p99, latest, unit="s"),
        Figure("five floods", five_of.p99, latest, unit="s"),
        Figure("without shares", today_of.p99, unit="s"),
        Figure("makespan ÷ without shares", one_of.makespan / today_of.makespan, longest),
        Figure("five floods ÷ without", five_of.makespan / today_of.makespan, longest),
        Figure("makespan", one_of.makespan, unit="s"),
        Figure("starts of small tenants", len(one_of.lateness)),
    ]


async def flood(stage: Stage, tenants: int, jobs: int) -> Outcome:
    stage.settings |= {"EXECUTOR__CONCURRENCY": 25, "EXECUTOR__LEASE_SECONDS": 30}
    await stage.database.fetch(ADD_SMALL_TENANTS, SMALL_TENANTS, CONNECTIONS_EACH)
    stage.start(2)
    await until(lambda: small_have_run(stage), within=60, what="small tenants run")
    await stage.queue_jobs({"flood": (tenants, jobs)})

    await until(lambda: is_done(stage, BEFORE_ALL), within=220, what="the end of the flood")
    began, ended, ended_at = (await stage.database.fetch(SPAN))[0]
    await until(lambda: is_done(stage, ended_at), within=60, what="what came meanwhile")
    done = await stage.value(ALL_DONE, ended_at)
    starts = await stage.database.fetch(STARTS, float(began), float(ended) - LATEST_SECONDS)
    lateness = [(row["at"] - float(began), row["late"]) for row in starts]
    return Outcome(float(done - began), lateness)


async def is_done(stage: Stage, came_by: datetime) -> bool:
    """Return whether the flood is over, and all that came by this time is done."""
    await asyncio.sleep(1)
    return bool(await stage.value(LEFT, came_by) == 0)


async def small_have_run(stage: Stage) -> bool:
    done = "SELECT count(*) FROM syncline.sync_jobs WHERE status = 'succeeded'"
    return bool(await stage.value(done) >= 20)


CASES = (
    Case(
        "floods",
        "small tenants start within two seconds beside floods, which take as long as before",
        (),
        floods,
        group=1,
    ),
)
