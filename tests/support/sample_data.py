"""Realistic sample data: 5,000 connections of 30 tenants, with failures of each kind.

python -m support.sample_data postgresql://… fills a migrated, empty database.
"""

import asyncio
import json
import math
import random
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg

TENANTS = (
    "acme",
    "aurora-labs",
    "bluebird",
    "brightside",
    "cobalt",
    "corvus",
    "daylight",
    "driftwood",
    "eastgate",
    "evergreen",
    "fjord",
    "foxglove",
    "granite",
    "harbor",
    "hazel",
    "indigo",
    "juniper",
    "kestrel",
    "lantern",
    "larkspur",
    "maple",
    "meridian",
    "northwind",
    "opal",
    "quarry",
    "redwood",
    "sable",
    "tidewater",
    "umber",
    "willow",
)
PROVIDERS = {"github": 40, "calendar": 22, "mailbox": 16, "helpdesk": 12, "feed": 8, "ledger": 2}
WORDS = (
    "api",
    "web",
    "billing",
    "checkout",
    "mobile",
    "search",
    "docs",
    "infra",
    "ops",
    "core",
    "growth",
    "design",
    "support",
    "people",
    "sales",
    "data",
    "platform",
    "edge",
)
KINDS = {
    "github": ("issue_opened", "issue_closed", "pull_request_merged", "comment_created"),
    "calendar": ("event_created", "event_moved", "event_cancelled"),
    "mailbox": ("message_received", "message_sent"),
    "helpdesk": ("ticket_created", "ticket_solved", "ticket_reopened"),
    "feed": ("entry_published",),
    "ledger": ("invoice_paid", "invoice_issued"),
}
INTERVALS = (None, None, None, 300, 600, 1800, 3600)
BACKOFF = {
    "RateLimited": ("the provider answered 429 Too Many Requests", True, 26),
    "Transient": ("the provider answered 503 Service Unavailable", False, 31),
    "Timeout": ("timed out after 300 s", False, 9),
    "Unexpected": ("KeyError: 'updated_at'", False, 5),
    "ContractError": ("signals[3].occurred_at has no time zone", False, 3),
    "LeaseLapsed": ("the worker's lease lapsed (1 in a row)", False, 4),
}
ENDED = {
    "needs_reauth": ("Unauthorized", "the provider answered 401: the grant was revoked", 41),
    "error": ("Permanent", "the provider answered 404: the repository is gone", 17),
}
CONNECTION_COLUMNS = [
    "id",
    "tenant_id",
    "provider_slug",
    "external_id",
    "status",
    "status_reason",
    "config",
    "metadata",
    "created_at",
    "updated_at",
    "last_finished_at",
]
JOB_COLUMNS = [
    "id",
    "tenant_id",
    "provider_slug",
    "connection_id",
    "job_type",
    "status",
    "priority",
    "attempts",
    "scheduled_at",
    "retry_after",
    "started_at",
    "finished_at",
    "cursor",
    "error",
    "created_at",
    "updated_at",
    "lease_token",
    "lease_expires_at",
    "counts_as_last",
]
SIGNAL_COLUMNS = [
    "id",
    "tenant_id",
    "provider_slug",
    "connection_id",
    "job_id",
    "kind",
    "occurred_at",
    "received_at",
    "payload",
    "dedupe_key",
]


@dataclass
class SampleData:
    """Rows generated from a seed, as of one moment."""

    now: datetime
    chance: random.Random
    connections: list[tuple[Any, ...]] = field(default_factory=list)
    jobs: list[tuple[Any, ...]] = field(default_factory=list)
    signals: list[tuple[Any, ...]] = field(default_factory=list)

    def id_at(self, instant: datetime) -> UUID:
        milliseconds = int(instant.timestamp() * 1000)
        noise = self.chance.getrandbits(74)
        low = (2 << 62) | noise & ((1 << 62) - 1)
        return UUID(int=milliseconds << 80 | 7 << 76 | (noise >> 62) << 64 | low)

    def ago(self, **length: float) -> datetime:
        return self.now - timedelta(**length)

    def build(self, count: int) -> None:
        troubles = [name for name, (_, _, share) in BACKOFF.items() for _ in range(share)]
        ended = [name for name, (_, _, share) in ENDED.items() for _ in range(share)]
        special = [*troubles, *ended, *["paused"] * 64, *["revoked"] * 12, *["running"] * 21,
                   *["due"] * 34, *["new"] * 15]  # fmt: skip
        fates = special + ["well"] * (count - len(special))
        self.chance.shuffle(fates)
        for fate in fates:
            self._add(fate)

    def _add(self, fate: str) -> None:
        chance = self.chance
        tenant = TENANTS[min(int(chance.paretovariate(0.9)) - 1, 29)]
        provider = chance.choices(list(PROVIDERS), list(PROVIDERS.values()))[0]
        if fate == "RateLimited":
            provider = "mailbox"
        id_ = self.id_at(self.ago(days=chance.uniform(1, 200)))
        name = f"{chance.choice(WORDS)}-{chance.choice(WORDS)}-{chance.randrange(10_000):04}"
        interval = chance.choice(INTERVALS)
        status = fate if fate in ("paused", "revoked", "needs_reauth", "error") else "active"
        every = timedelta(seconds=interval or 900)
        last = self._last_run(fate, every)
        whose = (tenant, provider, id_)
        if fate not in ("new",):
            self._add_history(whose, every, last, fate)
        self._add_pending(whose, fate)
        sync: dict[str, Any] = {"cursor": {"since": _text(last), "page": chance.randrange(1, 400)}}
        if interval:
            sync["interval_seconds"] = interval
        if status == "active":
            sync["next_run_at"] = _text(max(last + every, self.ago(seconds=chance.uniform(0, 9))))
        self.connections.append(
            (
                id_,
                tenant,
                provider,
                f"{tenant}/{name}",
                status,
                self._reason(fate, last),
                json.dumps({"region": chance.choice(("eu", "us", "ap"))}),
                json.dumps({"sync": sync}),
                self.ago(days=chance.uniform(1, 200)),
                last,
                last,
            )
        )

    def _last_run(self, fate: str, every: timedelta) -> datetime:
        if fate in ("needs_reauth", "error", "paused", "revoked"):
            return self.ago(hours=self.chance.lognormvariate(1.6, 1.4))
        if fate in BACKOFF:
            return self.ago(minutes=self.chance.uniform(15, 180))
        lateness = self.chance.random() ** 1.1
        if self.chance.random() < 0.03:
            lateness += min(self.chance.paretovariate(0.8), 900)
        return self.now - timedelta(seconds=every.total_seconds() * lateness)

    def _add_history(
        self, whose: tuple[str, str, UUID], every: timedelta, last: datetime, fate: str
    ) -> None:
        runs, frailty = self.chance.randrange(3, 8), 0.006
        if fate == "Transient":
            runs, frailty = 38, 0.12
        for place in range(runs):
            finished = last - place * every * self.chance.uniform(1, 1.05)
            took = timedelta(seconds=self.chance.lognormvariate(0, 0.9))
            is_last = place == 0
            error, status = None, "succeeded"
            if is_last and fate in ENDED:
                kind, message, _ = ENDED[fate]
                status, error = "failed", _error(kind, message, 1, finished)
            elif self.chance.random() < frailty:
                status = "failed"
                error = _error("Transient", "the provider answered 502 Bad Gateway", 8, finished)
            job_id = self.id_at(finished - took)
            self._job(whose, job_id, status, finished - took, finished, error=error)
            if status == "succeeded":
                self._add_signals(whose, job_id, finished)

    def _add_signals(self, whose: tuple[str, str, UUID], job_id: UUID, stored: datetime) -> None:
        tenant, provider, id_ = whose
        for _ in range(min(int(self.chance.expovariate(0.45)), 12)):
            kind = self.chance.choice(KINDS[provider])
            number = self.chance.randrange(100, 9999)
            occurred = stored - timedelta(minutes=self.chance.expovariate(0.2))
            payload = {
                "number": number,
                "title": f"{self.chance.choice(WORDS).title()} {self.chance.choice(WORDS)}",
                "author": {"login": self.chance.choice(("ada", "grace", "linus", "margaret"))},
                "labels": self.chance.sample(WORDS, 2),
                "draft": self.chance.random() < 0.1,
                "updated_at": _text(occurred),
            }
            self.signals.append(
                (
                    self.id_at(stored),
                    tenant,
                    provider,
                    id_,
                    job_id,
                    kind,
                    occurred,
                    stored,
                    json.dumps(payload),
                    f"{kind}:{number}:{self.chance.getrandbits(40):x}",
                )
            )

    def _add_pending(self, whose: tuple[str, str, UUID], fate: str) -> None:
        chance = self.chance
        if fate in BACKOFF:
            message, hinted, _ = BACKOFF[fate]
            began = self.ago(minutes=chance.uniform(1, 25))
            attempts = chance.randrange(1, 7)
            error = _error(fate, message, attempts, began, hinted=hinted)
            again = self.now + timedelta(seconds=chance.uniform(20, 1500))
            self._job(
                whose,
                self.id_at(began),
                "queued",
                began,
                None,
                error=error,
                attempts=attempts,
                retry_after=again,
            )
        elif fate == "running":
            began = self.ago(seconds=chance.uniform(1, 100))
            self._job(whose, self.id_at(began), "running", began, None)
        elif fate == "due":
            made = self.ago(seconds=chance.uniform(0, 14))
            self._job(whose, self.id_at(made), "queued", None, None, scheduled_at=made)

    def _job(
        self,
        whose: tuple[str, str, UUID],
        id_: UUID,
        status: str,
        started: datetime | None,
        finished: datetime | None,
        *,
        error: str | None = None,
        attempts: int = 0,
        retry_after: datetime | None = None,
        scheduled_at: datetime | None = None,
    ) -> None:
        is_running = status == "running"
        kind = "full" if self.chance.random() < 0.02 and finished else "incremental"
        made = scheduled_at or started or self.now
        lease = (self.id_at(made), self.now + timedelta(seconds=self.chance.uniform(8, 30)))
        self.jobs.append(
            (
                id_,
                *whose,
                kind,
                status,
                0,
                attempts,
                made,
                retry_after,
                started,
                finished,
                None,
                error,
                made,
                finished or made,
                *(lease if is_running else (None, None)),
                True,
            )
        )

    def _reason(self, fate: str, last: datetime) -> str | None:
        if fate in ENDED:
            return json.dumps({"why": ENDED[fate][1], "since": _text(last), "evidence": None})
        if fate == "paused":
            why = self.chance.choice(("quota reached", "asked by the customer", "migration"))
            return json.dumps({"why": why, "since": _text(last), "by": "ada"})
        return None


def _text(instant: datetime) -> str:
    return instant.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _error(
    kind: str, message: str, attempt: int, instant: datetime, *, hinted: bool = False
) -> str:
    record: dict[str, Any] = {"class": kind, "message": message, "attempt": attempt}
    record["time"] = _text(instant)
    return json.dumps(record | ({"hint": 900, "hinted": True} if hinted else {}))


async def fill(
    url: str, *, count: int = 5_000, seed: int = 7, schema: str = "syncline"
) -> SampleData:
    """Write the sample data into an empty database, as of the database's clock."""
    session = await asyncpg.connect(url)
    try:
        data = SampleData(await session.fetchval("SELECT clock_timestamp()"), random.Random(seed))
        data.build(count)
        copy = session.copy_records_to_table
        await copy(
            "connections", schema_name=schema, columns=CONNECTION_COLUMNS, records=data.connections
        )
        data.jobs.sort(key=lambda row: row[0])
        await copy("sync_jobs", schema_name=schema, columns=JOB_COLUMNS, records=data.jobs)
        data.signals.sort(key=lambda row: row[7])
        await copy("signals", schema_name=schema, columns=SIGNAL_COLUMNS, records=data.signals)
        await session.execute("ANALYZE")
        await write_heartbeats(session, data, schema)
    finally:
        await session.close()
    return data


async def write_heartbeats(session: Any, data: SampleData, schema: str = "syncline") -> None:
    """Write the heartbeats of five workers: three alive, one stopping, one dead."""
    now = await session.fetchval("SELECT clock_timestamp()")
    everything = sorted(set(PROVIDERS) - {"ledger"})
    rows = [
        ("sync-1.eu", 4211, ["scheduler", "executor"], everything, 64, 9, False, 26.0, 1.2),
        ("sync-2.eu", 4198, ["scheduler", "executor"], everything, 64, 8, False, 26.0, 3.9),
        ("sync-3.us", 977, ["executor"], everything[:3], 32, 4, False, 3.1, 2.4),
        ("sync-4.us", 1042, ["executor"], everything, 32, 1, True, 71.0, 0.8),
        ("sync-0.eu", 3300, ["executor"], everything, 64, 12, False, 120.0, 9_200.0),
    ]
    await session.execute(f"DELETE FROM {schema}.workers")
    await session.execute(
        f"UPDATE {schema}.sync_jobs SET lease_expires_at = clock_timestamp()"
        " + interval '1 s' * (16 + attempts + abs(hashtext(id::text)) % 14)"
        " WHERE status = 'running'"
    )
    await session.executemany(
        f"INSERT INTO {schema}.workers (id, host, pid, roles, providers, slots, busy, stopping,"
        " started_at, beat_at, version) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, '0.1.0')",
        [
            (
                data.id_at(now - timedelta(hours=hours)),
                *row,
                now - timedelta(hours=hours),
                now - timedelta(seconds=seconds),
            )
            for *row, hours, seconds in rows
        ],
    )


def main() -> None:
    data = asyncio.run(fill(sys.argv[1]))
    rows = (len(data.connections), len(data.jobs), len(data.signals))
    print("{:,} connections, {:,} jobs, {:,} signals".format(*rows))
    assert math.prod(rows)


if __name__ == "__main__":
    main()
