"""Compares the ledger with the database, and says whether every promise was kept."""

from collections.abc import Sequence
from dataclasses import dataclass

from faults.database import TALLY
from faults.fleet import LEASE_SECONDS
from faults.stage import Stage

RECOVERY_LIMIT = LEASE_SECONDS + 5.0
RETURN_LIMIT = 5.0
PAUSE_LIMIT = 6.0


@dataclass(frozen=True, slots=True)
class Line:
    """A figure of the verdict; `limit` is the highest allowed value, if there is one."""

    what: str
    value: float
    limit: float | None = None
    unit: str = ""

    @property
    def is_kept(self) -> bool:
        return self.limit is None or self.value <= self.limit

    def __str__(self) -> str:
        number = f"{self.value:.2f}" if self.unit else f"{self.value:,.0f}"
        return f"{number} {self.unit}".strip()


@dataclass(frozen=True, slots=True)
class Verdict:
    lines: Sequence[Line]
    complaints: Sequence[str]

    @property
    def is_good(self) -> bool:
        return not self.complaints and all(line.is_kept for line in self.lines)


async def judge(stage: Stage) -> Verdict:
    """Return the verdict on a run whose provider has no more records and whose queue is empty."""
    record, database = stage.record, stage.database
    tally = {row["external_id"]: row for row in await database.fetch(TALLY)}
    heads = {name: stream.head() for name, stream in stage.provider.streams.items()}
    expected = {name: head for name, head in heads.items() if name in tally}
    lost = sum(max(0, head - tally[name]["distinct"]) for name, head in expected.items())
    doubled = sum(row["stored"] - row["distinct"] for row in tally.values())
    complaints = [*record.complaints, *(f"a torn snapshot: {one}" for one in record.torn)]
    complaints += [f"{one.name}: {list(one.rows)}" for one in await stage.engine.verify()]
    count = "SELECT count(*) FROM "
    lines = [
        Line("faults injected", len(record.injections)),
        Line("kinds of fault", len(record.by_kind())),
        Line(
            "jobs run", await database.value(count + "syncline.sync_jobs WHERE status='succeeded'")
        ),
        Line("calls of the provider", stage.provider.calls),
        Line("signals expected", sum(expected.values())),
        Line("signals stored", sum(row["stored"] for row in tally.values())),
        Line("signals lost", lost, 0),
        Line("signals doubled", doubled, 0),
        Line("cursor regressions", await database.value(count + "public.regressions"), 0),
        Line("good pages refused", await database.value(count + "public.refusals"), 0),
        Line(
            "rows of deleted connections",
            await database.value(
                count + "syncline.signals WHERE connection_id = ANY ($1::uuid[])", stage.deleted
            ),
            0,
        ),
        Line(
            "connections out of action",
            await database.value(count + "syncline.connections WHERE status <> 'active'"),
            0,
        ),
        Line(
            "longest recovery after a kill", max(record.recoveries, default=0), RECOVERY_LIMIT, "s"
        ),
        Line(
            "longest first claim after Postgres", max(record.returns, default=0), RETURN_LIMIT, "s"
        ),
        Line(
            "longest pause of a stream beside others",
            max(record.pauses, default=0),
            PAUSE_LIMIT,
            "s",
        ),
        Line("rows left running after SIGTERM", record.left_running, 0),
        Line("overlapping calls of a frozen worker", record.overlaps["a worker stood still"]),
        Line("overlapping calls of a thread", record.overlaps["a thread did not stop"]),
        Line("overlapping calls, claim lost", record.overlaps["the database forgot the claim"]),
        Line("overlapping calls without a reason", record.overlaps["no reason"], 0),
        Line("deadlocks", record.deadlocks, 0),
        # Every message passes through this process, so its stalls delay all others.
        Line("longest stall of the suite itself", record.longest_stall, unit="s"),
    ]
    return Verdict(lines, complaints)
