"""What an operator sees from above: counts, freshness, rates, queue, failures, providers."""

import builtins
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from syncline.engine.upkeep.heartbeat import DEAD_AFTER
from syncline.model import ConnectionStatus, Job, Worker, WorkerStatus
from syncline.policy.freshness import Band, distribute
from syncline.services.base import BaseService
from syncline.store.data import workers
from syncline.store.listings import details
from syncline.store.listings.details import Lease, SignalsOfJobs
from syncline.store.pool import Transaction
from syncline.store.stats import counts, queue
from syncline.store.stats.counts import Figure, Trouble
from syncline.store.stats.queue import QueueStats

MINUTE = timedelta(minutes=1)
MINUTES_SHOWN = 30
STILL_MOVING = 3  # minutes after which what became of a minute's jobs is no longer looked up
MOST_A_MINUTE = 20_000
FAILED_WITHIN = timedelta(hours=1)
TENANTS_OFFERED = 200
LEASES_SHOWN = 100
RATE_LIMITED_SHARE = 50  # one in so many connections that were told to wait makes a provider so


@dataclass(frozen=True, slots=True)
class Minute:
    """What was made and stored in a minute; a count of `MOST_A_MINUTE` means at least so many."""

    at: datetime
    jobs: dict[str, int]
    signals: int


@dataclass(frozen=True, slots=True)
class Freshness:
    """Active connections by the age of their last good sync; `sampled` of them were looked at."""

    bands: Sequence[Band]
    sampled: int
    is_sample: bool


@dataclass(frozen=True, slots=True)
class Overview:
    now: datetime
    connections: Figure
    by_status: dict[str, Figure]
    signals: Figure
    minutes: Sequence[Minute]
    queues: dict[str, QueueStats]
    troubles: Sequence[Trouble]
    workers: Sequence[Worker]


@dataclass(frozen=True, slots=True)
class ProviderSummary:
    """How a provider fares: `ok`, `failing`, `rate_limited`, or `unknown` to all workers."""

    slug: str
    health: str
    connections: dict[str, int]
    queue: QueueStats
    good: int
    bad: int
    workers: int


@dataclass(frozen=True, slots=True)
class Providers:
    """The providers in use; with `is_sample` their connections are estimated."""

    now: datetime
    items: Sequence[ProviderSummary]
    is_sample: bool


@dataclass(slots=True)
class _Rates:
    """Minutes that have passed: nothing is counted twice."""

    minutes: dict[datetime, Minute] = field(default_factory=dict)

    def missing(self, shown: Iterable[datetime]) -> list[datetime]:
        return [at for at in shown if at not in self.minutes]

    def keep(self, counted: Iterable[Minute], *, shown: Iterable[datetime], now: datetime) -> None:
        kept = {**self.minutes, **{minute.at: minute for minute in counted}}
        settled = now - STILL_MOVING * MINUTE
        self.minutes = {at: kept[at] for at in shown if at < settled}


class Stats(BaseService):
    _rates: _Rates | None = None

    async def overview(self) -> Overview:
        """Return how everything stands."""

        async def read(tx: Transaction) -> Overview:
            now = await self._clock.now(tx)
            total, by_status = await counts.count_connections(tx)
            return Overview(
                now=now,
                connections=total,
                by_status=by_status,
                signals=await counts.count_signals(tx),
                minutes=await self._read_minutes(tx, now),
                queues=await queue.read_queues(
                    tx, now=now, failed_from=counts.first_id_at(now - FAILED_WITHIN)
                ),
                troubles=await counts.list_troubles(tx, limit=8),
                workers=await workers.list_all(tx, silent_since=now - DEAD_AFTER),
            )

        return await self._pool.reading(read)

    async def freshness(self) -> Freshness:
        """Return how old what was synced is, from a sample where there are many connections."""

        async def read(tx: Transaction) -> Freshness:
            now = await self._clock.now(tx)
            total, _ = await counts.count_connections(tx)
            seen = await counts.sample_freshness(tx, total.count)
            ages = [now - one.last_good_at if one.last_good_at else None for one in seen]
            return Freshness(distribute(ages), len(seen), total.count > counts.ALL_SAMPLED)

        return await self._pool.reading(read)

    async def providers(self) -> Providers:
        """Return the providers that have connections, jobs or workers."""

        async def read(tx: Transaction) -> Providers:
            now = await self._clock.now(tx)
            total, _ = await counts.count_connections(tx)
            many = total.count > counts.COUNTED_EXACTLY
            percent = 100.0 * counts.COUNTED_EXACTLY / total.count if many else 100.0
            by_provider = await details.count_by_provider(
                tx, percent=percent, limit=2 * counts.COUNTED_EXACTLY
            )
            queues = await queue.read_queues(
                tx, now=now, failed_from=counts.first_id_at(now - FAILED_WITHIN)
            )
            outcomes = await queue.count_outcomes(tx)
            seen = await workers.list_all(tx, silent_since=now - DEAD_AFTER)
            alive = [worker for worker in seen if worker.status == WorkerStatus.ALIVE]
            known = {slug for worker in alive for slug in worker.providers}
            items = [
                _summarise(
                    queues.get(slug) or QueueStats(slug),
                    _scaled(by_provider.get(slug, {}), 100.0 / percent),
                    outcomes.get(slug, (0, 0)),
                    sum(slug in worker.providers for worker in alive),
                    now,
                )
                for slug in sorted({*by_provider, *queues, *outcomes, *known})
            ]
            return Providers(now, items, many)

        return await self._pool.reading(read)

    async def now(self) -> datetime:
        """Return the engine's time, which ages are told from."""

        async def read(tx: Transaction) -> datetime:
            return await self._clock.now(tx)

        return await self._pool.reading(read)

    async def names(self, ids: Iterable[UUID]) -> dict[UUID, str]:
        """Return the external ids of connections."""

        async def read(tx: Transaction) -> dict[UUID, str]:
            return await details.read_names(tx, ids)

        return await self._pool.reading(read)

    async def tenants(self) -> builtins.list[str]:
        """Return the first tenants by name, to choose from."""

        async def read(tx: Transaction) -> builtins.list[str]:
            return await details.list_tenants(tx, limit=TENANTS_OFFERED)

        return await self._pool.reading(read)

    async def leases(self) -> builtins.list[Lease]:
        """Return what runs now, those first whose lease ends first."""

        async def read(tx: Transaction) -> builtins.list[Lease]:
            return await details.list_leases(tx, limit=LEASES_SHOWN)

        return await self._pool.reading(read)

    async def signals_of(self, connection_id: UUID, shown: Sequence[Job]) -> SignalsOfJobs:
        """Return how many signals each of a connection's jobs brought."""
        started = [job.started_at for job in shown if job.started_at is not None]
        if not started:
            return SignalsOfJobs({})

        async def read(tx: Transaction) -> SignalsOfJobs:
            return await details.count_signals_of_jobs(tx, connection_id, since=min(started))

        return await self._pool.reading(read)

    async def _read_minutes(self, tx: Transaction, now: datetime) -> builtins.list[Minute]:
        self._rates = rates = self._rates or _Rates()
        last = now.replace(second=0, microsecond=0)
        shown = [last - place * MINUTE for place in reversed(range(MINUTES_SHOWN))]
        spans = [(at, at + MINUTE) for at in rates.missing(shown)]
        jobs = await counts.count_jobs_made(tx, spans, limit=MOST_A_MINUTE)
        signals = await counts.count_signals_stored(tx, spans, limit=MOST_A_MINUTE)
        counted = [
            Minute(at, made, stored)
            for (at, _), made, stored in zip(spans, jobs, signals, strict=True)
        ]
        by_minute = {**rates.minutes, **{minute.at: minute for minute in counted}}
        rates.keep(counted, shown=shown, now=now)
        return [by_minute[at] for at in shown]


def _summarise(
    waiting: QueueStats,
    connections: dict[str, int],
    outcomes: tuple[int, int],
    able: int,
    now: datetime,
) -> ProviderSummary:
    good, bad = outcomes
    asked = sum(one.count for one in waiting.pauses if one.is_asked and one.last_at > now)
    if not able:
        health = "unknown"
    elif asked * RATE_LIMITED_SHARE >= max(sum(connections.values()), 1):
        health = "rate_limited"
    elif bad > good:
        health = "failing"
    else:
        health = "ok"
    return ProviderSummary(waiting.provider_slug, health, connections, waiting, good, bad, able)


def _scaled(counts: dict[str, int], factor: float) -> dict[str, int]:
    shown = {str(status): counts[status] for status in ConnectionStatus if status in counts}
    return {status: round(count * factor) for status, count in shown.items()}
