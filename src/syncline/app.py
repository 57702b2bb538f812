"""The composition root: build everything from the settings, start it, drain it, stop it."""

import asyncio
import copy
import warnings
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, suppress
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self
from uuid import UUID

from syncline.children.parsers import PARSERS
from syncline.clock import Dice, Rng, clock_from
from syncline.engine.connector_setup import configure_connectors
from syncline.engine.context import EngineContext
from syncline.engine.scheduler.tick import Scheduler, TickReport
from syncline.engine.secrets.token_refresh import TokenRefresher
from syncline.engine.secrets.vault import Vault
from syncline.engine.service import Service, Upkeep
from syncline.engine.upkeep.bulk import BulkRunner
from syncline.engine.upkeep.connector_files import ConnectorFiles
from syncline.engine.upkeep.figures import FigureKeeper
from syncline.engine.upkeep.heartbeat import Heartbeat
from syncline.engine.upkeep.job_walks import PruneReport
from syncline.engine.upkeep.key_uses import KeyUses
from syncline.engine.upkeep.maintenance import Maintenance
from syncline.engine.upkeep.retention import Pruner
from syncline.engine.wakeup import Wakeup
from syncline.engine.worker.worker import Worker
from syncline.errors import SettingsError
from syncline.http.budgets import CallBudgets, CallPermits
from syncline.http.gate import ClosedProviders
from syncline.http.pool import ConnectionPool
from syncline.keyring import KeyRing
from syncline.model import ApiRole, Finding, Job, JobType, SchemaVersions
from syncline.policy.audit import APPLICATION, Actor, named_actor
from syncline.policy.evidence import Explanation
from syncline.sdk.connector import Connector
from syncline.sdk.registry import connectors_by_provider
from syncline.services.access import Access
from syncline.services.audit import Audit
from syncline.services.base import ServiceContext
from syncline.services.budgets import Budgets
from syncline.services.bulk import BulkActions
from syncline.services.connections import Connections
from syncline.services.declarations import Declarations
from syncline.services.doctor import Doctor
from syncline.services.explain import Explanations
from syncline.services.gates import Gates
from syncline.services.jobs import Jobs
from syncline.services.names import Names
from syncline.services.search import Search
from syncline.services.secrets import Secrets
from syncline.services.shares import Shares
from syncline.services.signals import Signals
from syncline.services.stats import Stats
from syncline.services.tenant_providers import TenantProviders
from syncline.services.tenants import Tenants
from syncline.services.workers import Workers
from syncline.settings import Settings
from syncline.store import api_role
from syncline.store.checks.invariants import BROKEN
from syncline.store.embedded import EmbeddedPostgres
from syncline.store.migrate import check_schema, migrate, read_versions
from syncline.store.pool import Pool, SchemaChecks, SessionOptions, Transaction
from syncline.telemetry.engine import Telemetry


class Engine:
    """Everything an application needs: `async with` opens the pool, `run()` starts the loops."""

    connections: Connections
    jobs: Jobs
    bulk: BulkActions
    signals: Signals
    secrets: Secrets
    workers: Workers
    tenants: Tenants
    names: Names
    search: Search
    stats: Stats
    audit: Audit
    doctor: Doctor
    gates: Gates
    shares: Shares
    budgets: Budgets

    def __init__(
        self,
        settings: Settings | None = None,
        connectors: Iterable[Connector] = (),
        clock: Callable[[], datetime] | None = None,
        rng: Rng | None = None,
        *,
        discover: bool = True,
    ) -> None:
        """Build an engine; with `discover`, it also loads the connectors of installed packages."""
        self.settings = settings or Settings()
        self.providers = connectors_by_provider(connectors, discover=discover)
        self.telemetry = Telemetry(
            tenant_label=self.settings.telemetry.tenant_label, cell=self.settings.schema
        )
        self._clock = clock_from(clock)
        self._vault = Vault(KeyRing.of(self.settings.secret_keys))
        self._dice = Dice(rng)
        self._http_pool = ConnectionPool()
        self._permits = CallPermits(ClosedProviders(), CallBudgets(self._dice.roll))
        configure_connectors(
            self.providers, self.settings, self.telemetry.http, self._http_pool, self._permits
        )
        self._actor = APPLICATION
        self._embedded: EmbeddedPostgres | None = None
        self._resources = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as resources:
            url = self.settings.database_url
            if url is None:
                self._embedded = await resources.enter_async_context(EmbeddedPostgres())
                url = self._embedded.url
            self._http_pool.open()
            resources.push_async_callback(self._http_pool.close)  # after the last token refresh
            await self._open_pools(url, resources)
            self._build(url)
            self._resources = resources.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._worker.executor.drain(0)
        with suppress(Exception):  # losing the time of a key's last use does no harm
            async with asyncio.timeout(2):
                await self._key_uses.save()
        PARSERS.close()
        await self._resources.aclose()

    async def migrate(self) -> list[str]:
        """Bring the schema up to this version; return the migrations that were applied."""
        return await migrate(self._pool)

    async def schema_versions(self) -> SchemaVersions:
        """Return the schema's version, and the newest version that this Syncline knows."""
        async with self._pool.transaction() as tx:
            return await read_versions(tx)

    async def api_role(self) -> ApiRole:
        """Return the database role of requests, with the statements that it still needs."""
        async with self._pool.transaction() as tx:
            return await api_role.read_role(tx, self.settings.schema)

    def for_request(self, tenant_id: str | None, *, actor: Actor | str | None = None) -> Self:
        """Return this engine for a request that may see one tenant's rows, or all with None.

        The audit names the `actor` as the one who acts. The loops stay those of the engine itself,
        and see everything.
        """
        engine = self.acting_as(self._actor if actor is None else actor)
        engine._build_services(self._pool.for_request(tenant_id))
        return engine

    def acting_as(self, actor: Actor | str) -> Self:
        """Return this engine for somebody whom the audit names as the one who acts."""
        engine = copy.copy(self)
        engine._actor = named_actor(actor) if isinstance(actor, str) else actor
        engine._build_recorded_services()
        engine._build_services(self._pool)
        return engine

    async def tick(self) -> TickReport:
        """Make one pass of the scheduler."""
        return await self._scheduler.tick()

    async def run_due(self) -> int:
        """Reap, claim and run until there is nothing to claim; return the number of attempts."""
        attempts = await self._worker.run_due()
        await self._upkeep.figures.write()
        return attempts

    async def prune(self) -> PruneReport:
        """Delete what the retention settings no longer keep; return how much was deleted."""
        return await self._upkeep.pruner.prune()

    async def trigger(
        self,
        connection_id: UUID,
        *,
        job_type: str = JobType.INCREMENTAL,
        priority: int | None = None,
        tenant_id: str | None = None,
    ) -> Job:
        """Sync now; return the job that will do it."""
        return await self.jobs.trigger(
            connection_id, job_type=job_type, priority=priority, tenant_id=tenant_id
        )

    async def explain(self, connection_id: UUID, *, tenant_id: str | None = None) -> Explanation:
        """Return why a connection is, or is not, running now."""
        return await self._explanations.explain(connection_id, tenant_id=tenant_id)

    async def verify(self) -> list[Finding]:
        """Return the broken invariants, with what breaks them."""
        return [found for found in await self.doctor.judge() if found.verdict == BROKEN]

    async def now(self) -> datetime:
        """Return the engine's time: that of the injected clock, or else the database's."""
        async with self._pool.transaction() as tx:
            return await self._clock.now(tx)

    async def health(self) -> dict[str, str]:
        """Return what is unhealthy and why, by name; empty means ready."""
        ill = {}
        try:
            async with asyncio.timeout(2), self._pool.transaction() as tx:
                await check_schema(tx, self.settings.schema)
                if await tx.is_read_only():
                    ill["database"] = "the database is read-only: nothing can be stored"
        except Exception as error:
            ill["database"] = f"{type(error).__name__}: {error}"
        return ill | self._service.ailing()

    @property
    def is_draining(self) -> bool:
        """Return whether `run()` was told to stop and is draining."""
        return self._service.is_stopping

    def stop(self) -> None:
        """Tell `run()` to claim no more, to drain, and to return."""
        self._service.stop()

    async def run(
        self,
        *,
        handle_signals: bool = True,
        scheduler: bool = True,
        executor: bool = True,
        signals: bool | None = None,
    ) -> bool:
        """Run every loop until SIGTERM, SIGINT or `stop()`; return whether the end was clean.

        A clean end leaves no row of this process `running`. `signals` is the old spelling of
        `handle_signals`.
        """
        if signals is not None:
            message = "Engine.run(signals=…) is deprecated; use handle_signals"
            warnings.warn(message, DeprecationWarning, stacklevel=2)
            handle_signals = signals
        async with self._pool.transaction() as tx:
            await check_schema(tx, self.settings.schema)
        return await self._service.run(
            handle_signals=handle_signals, scheduler=scheduler, executor=executor
        )

    async def _open_pools(self, url: str, resources: AsyncExitStack) -> None:
        settings = self.settings

        async def check(tx: Transaction) -> None:
            await check_schema(tx, settings.schema)
            await api_role.check_inheritance(tx, settings.schema)

        async def find_role(tx: Transaction) -> str | None:
            return await api_role.find(tx, settings.schema)

        idle = timedelta(seconds=min(10, max(2, settings.executor.lease_seconds)))
        pools = [
            Pool(
                url,
                settings.schema,
                size=size,
                options=SessionOptions(settings.pgbouncer, idle, portable=settings.portable),
                checks=SchemaChecks(check, find_role),
            )
            for size in (settings.pool_size, 1)
        ]
        for pool in pools:
            await _open(pool)
            resources.push_async_callback(pool.close)
        self._pool, self._lease_pool = pools
        self._token_refresher = TokenRefresher(self._pool, self._clock, self._vault)
        resources.push_async_callback(self._token_refresher.close)

    def _build(self, url: str) -> None:
        settings, clock, telemetry = self.settings, self._clock, self.telemetry
        listen_url = settings.listen_url or (None if settings.pgbouncer else url)
        engine = EngineContext(self._pool, settings, clock, self._dice, telemetry)
        self._worker = Worker(
            engine, self._lease_pool, self.providers, self._token_refresher, self._permits
        )
        listen_url = None if settings.portable else listen_url
        self._wakeup = Wakeup(listen_url, self._pool, self._worker.claim_now)
        self._scheduler = Scheduler(engine, self._wakeup)
        self._key_uses = KeyUses(self._pool, clock)
        self._files = ConnectorFiles(self._pool, self.providers)
        heartbeat = self._heartbeat()
        self._upkeep = Upkeep(
            heartbeat,
            Maintenance(self._pool, clock, telemetry.upkeep, self._key_uses, self._files),
            Pruner(self._pool, settings, clock, heartbeat, telemetry.upkeep),
            FigureKeeper(self._pool, clock, heartbeat, telemetry.figures),
            BulkRunner(engine, self._wakeup),
            self._embedded,
        )
        self._service = Service(engine, self._scheduler, self._worker, self._upkeep, self._wakeup)
        self._build_own_services()
        self._build_recorded_services()
        self._build_services(self._pool)

    def _build_own_services(self) -> None:
        """Build the services that change nothing, and hold no tenant's rows."""
        context = self._service_context(self._pool)
        self.doctor = Doctor(context)
        self.tenant_providers = TenantProviders(context, self.providers)
        self.declarations = Declarations(context, self.providers)

    def _build_recorded_services(self) -> None:
        """Build the services that use the engine's own pool, and whose changes are recorded.

        Requests have a role that may not read keys. The other services here serve no request, or
        hold no tenant's rows.
        """
        context = self._service_context(self._pool)
        self.access = Access(context, self._key_uses)
        self.gates = Gates(context)
        self.shares = Shares(context)
        self.budgets = Budgets(context)
        self.secrets = Secrets(context, self._vault)
        self.tenants = Tenants(context, self._files)

    def _build_services(self, pool: Pool) -> None:
        """Build the services that requests use too, on the pool that they may use."""
        context = self._service_context(pool)
        self.connections = Connections(context, self._vault, self._files, self.gates)
        self.jobs = Jobs(context)
        self.bulk = BulkActions(context, self._upkeep.bulk)
        self.signals = Signals(context)
        self.workers = Workers(context)
        self.names = Names(context)
        self.search = Search(context)
        self.stats = Stats(context)
        self.audit = Audit(context)
        self._explanations = Explanations(context)

    def _service_context(self, pool: Pool) -> ServiceContext:
        return ServiceContext(pool, self.settings, self._clock, self._wakeup, self._actor)

    def _heartbeat(self) -> Heartbeat:
        executor = self._worker.executor
        return Heartbeat(
            self._pool,
            self._clock,
            self.providers,
            lambda: (executor.limit, executor.limit - executor.free_slots),
        )


async def _open(pool: Pool) -> None:
    try:
        await pool.open()
    except SettingsError:
        raise
    except ValueError:  # the driver's message may quote a part of the password
        form = "postgresql://user@host:5432/database"
        raise SettingsError(f"database_url is not a valid URL; write it as {form}") from None
