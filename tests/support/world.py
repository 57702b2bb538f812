"""A small world for scenarios: one engine on real Postgres, a clock to set, dice to load."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from support.fakes import HeldRun, LoadedDice
from support.plainsql import PlainSql
from syncline import Connection, Connector, Engine, Settings, SyncResult
from syncline.engine.scheduler.tick import TickReport
from syncline.model import Job, StoredSignal
from syncline.settings import ExecutorSettings
from syncline.testing import ManualClock, ScriptedConnector
from syncline.testing.fakes import Line

Logged = Callable[[str], list[dict[str, Any]]]
"""Returns the fields of each log record of an event."""

EMPTY_PAGE = SyncResult()
DAY = datetime(2025, 1, 1, tzinfo=UTC)


def in_short(**values: float) -> ExecutorSettings:
    """Return executor settings whose times may be shorter than people may set them.

    A test then waits a moment for what takes a second or more in production.
    """
    return ExecutorSettings().model_copy(update=values)


def at(text: str) -> datetime:
    """Return a time of the day on which every scenario plays: at("10:15:30")."""
    parts = [int(part) for part in text.split(":")]
    hours, minutes, seconds = parts + [0] * (3 - len(parts))
    return DAY + timedelta(hours=hours, minutes=minutes, seconds=seconds)


class World(PlainSql):
    """An engine, its clock and its connector, and plain SQL beside them."""

    def __init__(self, url: str, engine: Engine, clock: ManualClock, dice: LoadedDice) -> None:
        super().__init__(url, engine.settings.schema)
        self.engine = engine
        self.clock = clock
        self.dice = dice
        self.settings = engine.settings

    @property
    def connector(self) -> ScriptedConnector:
        """The scripted connector of the provider "github"."""
        connector = self.engine.providers["github"]
        assert isinstance(connector, ScriptedConnector)
        return connector

    def script(self, *lines: Line) -> None:
        """Add lines to the connector's script."""
        self.connector.script.extend(lines)

    async def connection(
        self,
        *,
        tenant: str = "acme",
        provider: str = "github",
        status: str = "active",
        sync: dict[str, Any] | None = None,
        last_finished: str | datetime | None = None,
        created: str | datetime = "00:00",
        metadata: Any = None,
        id_: UUID | None = None,
    ) -> Connection:
        """Insert a connection by plain SQL, as a person would, with a finished job if asked for."""
        id_ = id_ or uuid4()
        await self.sql(
            "INSERT INTO {schema}.connections"
            " (id, tenant_id, provider_slug, external_id, status, metadata, created_at)"
            " VALUES ($1, $2, $3, $4, $5, $6, $7)",
            *(id_, tenant, provider, str(id_), status),
            json.dumps({"sync": sync or {}} if metadata is None else metadata),
            _instant(created),
        )
        connection = await self.engine.connections.get(id_)
        if last_finished is not None:
            finished = _instant(last_finished)
            await self.job(connection, status="succeeded", finished_at=finished)
        return connection

    async def job(self, connection: Connection, *, session: Any = None, **columns: Any) -> UUID:
        """Insert a job by plain SQL: incremental, queued, and due at once unless told otherwise."""
        row: dict[str, Any] = {
            "id": uuid4(),
            "tenant_id": connection.tenant_id,
            "provider_slug": connection.provider_slug,
            "connection_id": connection.id,
            "job_type": "incremental",
            "scheduled_at": columns.get("finished_at", self.clock()),
            **columns,
        }
        names = ", ".join(row)
        places = ", ".join(f"${number}" for number in range(1, len(row) + 1))
        insert = f"INSERT INTO {{schema}}.sync_jobs ({names}) VALUES ({places})"
        await self.sql(insert, *row.values(), session=session)
        id_: UUID = row["id"]
        return id_

    async def running_job(self, connection: Connection, **columns: Any) -> UUID:
        """Insert a job that was claimed just now, by a worker that is gone."""
        now = self.clock()
        lease = {"lease_token": uuid4(), "lease_expires_at": now + self.settings.executor.lease}
        claimed = {"status": "running", "started_at": now, **lease}
        return await self.job(connection, **{**claimed, **columns})

    async def tick(
        self, at_time: str | datetime | None = None, *, jitter_seconds: int | None = None
    ) -> TickReport:
        """Tick at a time of the day; a jitter given is the one that a 900 s interval samples."""
        if at_time is not None:
            self.clock.set(_instant(at_time))
        if jitter_seconds is not None:
            self.dice.value = self.roll_for_jitter(jitter_seconds)
        return await self.engine.tick()

    def roll_for_jitter(self, seconds: int, *, interval: int = 900) -> float:
        rules = self.settings.scheduler
        lowest, highest = rules.jitter_pct_min * interval, rules.jitter_pct_max * interval
        return float((seconds - lowest) / (highest - lowest + 1)) + 1e-6

    async def run_due(self, at_time: str | datetime | None = None) -> int:
        if at_time is not None:
            self.clock.set(_instant(at_time))
        return await self.engine.run_due()

    @asynccontextmanager
    async def during_run(
        self, ending: SyncResult | BaseException = EMPTY_PAGE
    ) -> AsyncIterator[HeldRun]:
        """Yield while another worker runs one job, the only one that it takes."""
        held = HeldRun(ending)
        self.script(held)
        async with self.another_engine(executor={"concurrency": 1}) as worker:
            held.engine = worker.engine
            held.worker = asyncio.create_task(worker.engine.run_due())
            started = asyncio.create_task(held.started.wait())
            await asyncio.wait((held.worker, started), return_when=asyncio.FIRST_COMPLETED)
            assert started.done(), "no job was due"
            worker.engine._worker.executor.stop_claiming()
            try:
                yield held
            finally:
                await held.finish()

    async def run_one(self, ending: SyncResult | BaseException = EMPTY_PAGE) -> None:
        """Run only the next due job, and leave its follow-up queued."""
        async with self.during_run(ending):
            pass

    async def jobs(self, connection: Connection, **columns: Any) -> list[Job]:
        """Return the connection's jobs, oldest first, filtered by columns."""
        found = await self.engine.jobs.list(connection_id=connection.id, limit=1000)
        return [
            job
            for job in sorted(found, key=lambda job: (job.created_at, job.id))
            if all(getattr(job, name) == value for name, value in columns.items())
        ]

    async def pending(self, connection: Connection) -> Job:
        """Return the connection's only queued or running job."""
        jobs = [job for job in await self.jobs(connection) if job.status in ("queued", "running")]
        assert len(jobs) == 1, jobs
        return jobs[0]

    async def get_job(self, job_id: UUID) -> Job:
        return await self.engine.jobs.get(job_id)

    async def sync_metadata(self, connection: Connection) -> Any:
        """Return the current `metadata.sync`."""
        return (await self.engine.connections.get(connection.id)).metadata["sync"]

    async def next_run(self, connection: Connection) -> datetime:
        return datetime.fromisoformat((await self.sync_metadata(connection))["next_run_at"])

    async def signals(self, connection: Connection) -> list[StoredSignal]:
        return await self.engine.signals.list(connection_id=connection.id, limit=100_000)

    async def set_metadata(self, connection: Connection, path: str, value: Any) -> None:
        """Edit one key by plain SQL, as a person would: path "sync,interval_seconds"."""
        await self.sql(
            "UPDATE {schema}.connections SET metadata = jsonb_set(metadata, $2, $3) WHERE id = $1",
            *(connection.id, path.split(","), json.dumps(value)),
        )

    def metric(self, name: str, **labels: str) -> float | None:
        return self.engine.telemetry.registry.get_sample_value(name, labels)

    @asynccontextmanager
    async def another_engine(
        self, connectors: Iterable[Connector] | None = None, **settings: Any
    ) -> AsyncIterator["World"]:
        """Yield a second engine on the same database, with the same clock, dice and settings."""
        own = self.settings.model_dump(exclude={"database_url", "connectors", "executor"})
        executor = settings.pop("executor", {})
        for name, value in settings.items():
            own[name] = {**own[name], **value} if isinstance(value, dict) else value
        # Copied, because its times may be shorter than people may set them.
        own["executor"] = self.settings.executor.model_copy(update=executor)
        async with open_world(
            self.url,
            clock=self.clock,
            dice=self.dice,
            connectors=self.engine.providers.values() if connectors is None else connectors,
            **own,
        ) as world:
            yield world


@asynccontextmanager
async def open_world(
    url: str,
    *,
    clock: ManualClock | None = None,
    dice: LoadedDice | None = None,
    connectors: Iterable[Connector] | None = None,
    **settings: Any,
) -> AsyncIterator[World]:
    clock, dice = clock or ManualClock(at("12:00")), dice or LoadedDice()
    scripted = [ScriptedConnector("github")] if connectors is None else connectors
    chosen = Settings(database_url=url, **settings)
    # Without discovery: some of our connectors serve providers that tests name too.
    async with Engine(chosen, scripted, clock, dice, discover=False) as engine:
        world = World(url, engine, clock, dice)
        try:
            yield world
        finally:
            await world.close()


def _instant(time: str | datetime) -> datetime:
    return at(time) if isinstance(time, str) else time
