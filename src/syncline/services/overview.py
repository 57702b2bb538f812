"""How everything fares, for people who look from above: providers and sums."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from syncline.engine.upkeep.heartbeat import DEAD_AFTER
from syncline.model import Worker, WorkerStatus
from syncline.services.base import BaseService
from syncline.store.data import workers
from syncline.store.pool import Transaction
from syncline.store.stats import providers as provider_views
from syncline.store.stats import summary
from syncline.store.stats.providers import ProviderView


@dataclass(frozen=True, slots=True)
class ProviderHealth:
    """A provider, and `ok`, `failing`, `rate_limited` or `unknown` (no living worker knows it)."""

    view: ProviderView
    health: str
    workers: int


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over everything, or over one tenant's rows."""

    now: datetime
    connections: dict[str, int]
    running_jobs: int
    due_jobs: int
    backoff_jobs: int
    oldest_due_at: datetime | None
    recent_outcomes: dict[str, int]
    signals: int
    workers_alive: int


class Overview(BaseService):
    async def providers(self, *, tenant_id: str | None = None) -> list[ProviderHealth]:
        """Return the providers in use and how each fares."""

        async def read(tx: Transaction) -> list[ProviderHealth]:
            now = await self._clock.now(tx)
            alive = await self._alive(tx, now)
            seen = await provider_views.look(tx, tenant_id, now=now)
            return [_judge(view, alive) for view in seen]

        return await self._pool.reading(read)

    async def stats(self, *, tenant_id: str | None = None) -> Totals:
        """Return sums: of everything, or of one tenant's."""

        async def read(tx: Transaction) -> Totals:
            now = await self._clock.now(tx)
            seen = await provider_views.look(tx, tenant_id, now=now)
            if tenant_id is None:
                signals = (await summary.summarise(tx)).signals
            else:
                signals = await provider_views.count_signals(tx, tenant_id)
            return Totals(
                now=now,
                connections=_sum(view.connections for view in seen),
                running_jobs=sum(view.running for view in seen),
                due_jobs=sum(view.due for view in seen),
                backoff_jobs=sum(view.backoff for view in seen),
                oldest_due_at=min(
                    (view.oldest_due_at for view in seen if view.oldest_due_at), default=None
                ),
                recent_outcomes=_sum(view.outcomes for view in seen),
                signals=signals,
                workers_alive=len(await self._alive(tx, now)),
            )

        return await self._pool.reading(read)

    async def _alive(self, tx: Transaction, now: datetime) -> list[Worker]:
        seen = await workers.list_all(tx, silent_since=now - DEAD_AFTER)
        return [worker for worker in seen if worker.status == WorkerStatus.ALIVE]


def _judge(view: ProviderView, alive: list[Worker]) -> ProviderHealth:
    able = sum(view.provider_slug in worker.providers for worker in alive)
    failed = sum(count for outcome, count in view.outcomes.items() if outcome != "succeeded")
    if not able:
        health = "unknown"
    elif view.rate_limited:
        health = "rate_limited"
    elif failed > view.outcomes.get("succeeded", 0):
        health = "failing"
    else:
        health = "ok"
    return ProviderHealth(view, health, able)


def _sum(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for one in counts:
        for name, count in one.items():
            total[name] = total.get(name, 0) + count
    return total
