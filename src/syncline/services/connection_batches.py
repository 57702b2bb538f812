"""Many connections at once: each is added, is there already, or has something wrong with it."""

import builtins
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from syncline.clock import new_id
from syncline.errors import Conflict, Invalid
from syncline.model import Connection, ConnectionStatus
from syncline.services.base import BaseService, Once
from syncline.services.validation import check_config, check_interval, check_text
from syncline.store.data import connection_batches, tenant_usage
from syncline.store.data.connection_batches import key_of
from syncline.store.pool import Transaction
from syncline.text import rfc3339


@dataclass(frozen=True, slots=True)
class NewConnection:
    """What a connection is made from."""

    tenant_id: str
    provider_slug: str
    external_id: str
    config: dict[str, Any] | None = None
    interval_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Added:
    """What became of one: its id, whether it is new, or why it was refused."""

    id: UUID | None = None
    is_new: bool = False
    problem: Invalid | None = None


class ConnectionBatches(BaseService):
    async def create_many(
        self,
        wanted: Sequence[NewConnection],
        *,
        all_or_none: bool = False,
        at_most: int | None = None,
        once: Once[builtins.list[Added]] | None = None,
    ) -> builtins.list[Added]:
        """Add those that are sound and not there yet; return what became of each, in order.

        With `all_or_none` a bad one raises Invalid, which names its place and field. With
        `at_most` no tenant gets more connections than that: then all are refused.
        """
        problems = [self._problem(new) for new in wanted]
        for place, problem in enumerate(problems):
            if all_or_none and problem is not None:
                raise problem.within(f"connections[{place}]")
        sound = [
            (place, new)
            for place, (new, problem) in enumerate(zip(wanted, problems, strict=True))
            if problem is None
        ]
        ids = {place: new_id() for place, _ in sound}

        async def insert(tx: Transaction) -> builtins.list[Added]:
            outcomes = [Added(problem=problem) for problem in problems]
            if sound:
                now = await self._clock.now(tx)
                made = {place: make(new, ids[place], now) for place, new in sound}
                found = await connection_batches.insert_many(tx, list(made.values()), now=now)
                for place, connection in made.items():
                    id_ = found[key_of(connection)]
                    outcomes[place] = Added(id_, is_new=id_ == ids[place])
                if any(outcome.is_new for outcome in outcomes):
                    await check_room(tx, {new.tenant_id for _, new in sound}, at_most)
            return outcomes

        return await self._change(insert, once)

    def _problem(self, new: NewConnection) -> Invalid | None:
        try:
            check_new(new, self._settings.scheduler.max_overridden_interval_seconds)
        except Invalid as error:
            return error
        return None


def check_new(new: NewConnection, maximum_interval: int) -> None:
    """Raise Invalid unless a connection can be made of it."""
    check_text("tenant_id", new.tenant_id, characters=255)
    check_text("provider_slug", new.provider_slug, characters=100)
    check_text("external_id", new.external_id, octets=1024)
    check_config(new.config)
    if new.interval_seconds is not None:
        check_interval(new.interval_seconds, maximum_interval)


async def check_room(tx: Transaction, tenants: Iterable[str], at_most: int | None) -> None:
    """Raise Conflict if a tenant has more connections than it may have, the new ones included."""
    if at_most is None:
        return
    for tenant_id in sorted(tenants):
        if await tenant_usage.has_more_connections(tx, tenant_id, at_most):
            limit = f"{at_most:,} connections (api.max_connections_per_tenant)"
            reason = f"may have {limit}: remove some, or ask an operator"
            raise Conflict(None, f"tenant {tenant_id}", reason)


def make(new: NewConnection, id_: UUID, now: datetime) -> Connection:
    sync: dict[str, Any] = {"first_activated_at": rfc3339(now)}
    if new.interval_seconds is not None:
        sync["interval_seconds"] = new.interval_seconds
    return Connection(
        id=id_,
        tenant_id=new.tenant_id,
        provider_slug=new.provider_slug,
        external_id=new.external_id,
        status=ConnectionStatus.ACTIVE,
        config=new.config or {},
        metadata={"sync": sync},
        created_at=now,
        updated_at=now,
    )
