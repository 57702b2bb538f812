"""Whether the invariants hold, while the engine runs.

Each is one statement, and so one snapshot: what other sessions have not committed is invisible.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from syncline.model import Finding
from syncline.policy.outcome import LAPSES_TO_FAIL
from syncline.policy.schedule import ScheduleRules
from syncline.store.checks.invariant_queries import INVARIANTS as INVARIANTS
from syncline.store.checks.invariant_queries import NEWEST
from syncline.store.pool import Transaction

SHOWN = 20
TIMEOUT_SECONDS = 300.0
TIME_TO_REAP = timedelta(seconds=10)
TABLES = ("connections", "sync_jobs", "signals")


@dataclass(frozen=True, slots=True)
class Yardstick:
    """What the invariants are measured by.

    The scheduling of connections is judged from two ticks after a scheduler began; before that,
    `two_ticks_ago` is None and nothing can be said of it.
    """

    now: datetime
    two_ticks_ago: datetime | None
    rules: ScheduleRules
    lease: timedelta
    longest_wait: timedelta
    newest: int = NEWEST

    def measures(self, tables: Sequence[str]) -> dict[str, Any]:
        return {
            "tables": list(tables),
            "newest": self.newest,
            "two_ticks_ago": self.two_ticks_ago,
            "maximum_interval": int(self.rules.maximum_interval.total_seconds()),
            "default_interval": int(self.rules.default_interval.total_seconds()),
            "now": self.now,
            "lease": self.lease,
            "time_to_reap": TIME_TO_REAP,
            "latest_retry": self.now + self.longest_wait,
            "most_lapses": LAPSES_TO_FAIL,
        }


LAPSE = "lapse_is_reaped"
OK, BROKEN, NOT_JUDGED = "ok", "broken", "not judged"


async def judge(tx: Transaction, yardstick: Yardstick) -> list[Finding]:
    """Return what can be said of each invariant."""
    measures = yardstick.measures([tx.qualified(table) for table in TABLES])
    findings = []
    for invariant in INVARIANTS:
        arguments = [measures[name] for name in invariant.arguments]
        verdict, rows = NOT_JUDGED, []
        if None not in arguments:
            found = await tx.fetch(invariant.query, SHOWN, *arguments, timeout=TIMEOUT_SECONDS)
            verdict, rows = BROKEN if found else OK, [_readable(row) for row in found]
        findings.append(Finding(invariant.name, invariant.sentence, verdict, rows))
    return findings


def has_late_reaping(findings: Sequence[Finding]) -> bool:
    return any(finding.name == LAPSE and finding.verdict == BROKEN for finding in findings)


STILL_LAPSED = """
    -- Those of the jobs whose lease is still lapsed, and that nobody holds: what somebody else's
    -- transaction has locked cannot be taken over until it ends.
    SELECT id FROM {schema}.sync_jobs
     WHERE id = ANY ($1::uuid[]) AND status = 'running' AND lease_expires_at < $2
       FOR UPDATE SKIP LOCKED
"""


async def excuse_held(
    tx: Transaction, findings: Sequence[Finding], *, now: datetime
) -> list[Finding]:
    """Return the findings without the lapsed leases that somebody keeps from the reaper."""
    if await tx.is_read_only():
        return list(findings)  # where nothing can be locked, nothing is reaped either
    judged = []
    for finding in findings:
        if finding.name == LAPSE and finding.verdict == BROKEN:
            ids = [UUID(row["id"]) for row in finding.rows]
            free = {str(row["id"]) for row in await tx.fetch(STILL_LAPSED, ids, now)}
            rows = [row for row in finding.rows if row["id"] in free]
            finding = replace(finding, verdict=BROKEN if rows else OK, rows=rows)
        judged.append(finding)
    return judged


def _readable(row: Any) -> dict[str, Any]:
    return json.loads(json.dumps(dict(row), default=str))  # type: ignore[no-any-return]
