"""Actions on everything that a filter matches: preview, begin, follow, cancel."""

import builtins
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from syncline.clock import new_id
from syncline.engine.upkeep.bulk import BulkRunner
from syncline.errors import Conflict, Invalid, NotFound
from syncline.model import Connection, ConnectionFilter, Job, JobFilter
from syncline.policy.audit import Action, Entry
from syncline.policy.bulk import (
    ACTED_ON,
    MOST_COUNTED,
    VERBS,
    BulkAction,
    BulkState,
    BulkVerb,
    Target,
    filter_as_json,
    has_changed,
)
from syncline.services.base import BaseService, Once, ServiceContext
from syncline.services.connection_filters import check_listing
from syncline.services.jobs import check_job_filter
from syncline.services.pagination import Listing, check_limit, cut_page, read_token, write_token
from syncline.services.validation import check_choice, check_interval, check_text
from syncline.store.data import bulk_actions, connections
from syncline.store.listings import walks
from syncline.store.pool import Transaction
from syncline.store.queue import triggers

SHOWN = 10


@dataclass(frozen=True, slots=True)
class BulkRequest:
    """What to do to everything that a filter of the listing matches."""

    action: str
    wanted: ConnectionFilter | JobFilter
    interval_seconds: int | None = None
    reason: str | None = None

    @property
    def target(self) -> Target:
        return Target.JOBS if isinstance(self.wanted, JobFilter) else Target.CONNECTIONS


@dataclass(frozen=True, slots=True)
class Preview:
    """How many rows match, and the first ones. Beyond a bound, the count is the least."""

    request: BulkRequest
    count: int
    first: list[Connection | Job] = field(default_factory=list)

    @property
    def is_exact(self) -> bool:
        return self.count < MOST_COUNTED


class BulkActions(BaseService):
    def __init__(self, context: ServiceContext, runner: BulkRunner) -> None:
        super().__init__(context)
        self._runner = runner

    async def preview(self, request: BulkRequest) -> Preview:
        """Return how many rows an action would have, and the first ones. Nothing changes."""
        self._check(request)

        async def read(tx: Transaction) -> Preview:
            ids = await self._find(tx, request)
            first = [await _row(tx, request.target, id_) for id_ in ids[:SHOWN]]
            return Preview(request, len(ids), [one for one in first if one is not None])

        return await self._pool.reading(read)

    async def start(
        self,
        request: BulkRequest,
        *,
        expected: int,
        tenant_id: str | None = None,
        once: Once[BulkAction] | None = None,
    ) -> BulkAction:
        """Begin an action on the rows that a preview counted; a process carries it out.

        If the filter matches a tenth more by now, `Conflict` is raised and nothing begins. With a
        tenant's id, that tenant alone sees the action, and it touches no other tenant's rows.
        """
        self._check(request)
        if expected < 0:
            raise Invalid("expected", "is less than 0; give the count of the preview")
        if tenant_id is not None:
            request = replace(request, wanted=replace(request.wanted, tenant_id=tenant_id))

        async def begin(tx: Transaction) -> BulkAction:
            found = len(await self._find(tx, request))
            if has_changed(expected, found):
                raise Conflict(None, "filter", f"matches {found} now, not {expected}; look again")
            now = await self._clock.now(tx)
            action = self._build(request, found, tenant_id, now)
            await bulk_actions.insert(tx, action)
            await self._record(tx, _entry(Action.BULK_START, action), now=now)
            return action

        begun = await self._change(begin, once)
        self._runner.wake.set()
        return begun

    async def run(
        self, action_id: UUID, *, on_progress: Callable[[int], None] = lambda _: None
    ) -> BulkAction:
        """Carry an action out here, unless another process does so already; return it."""
        await self._runner.run(action_id, on_progress)
        return await self.get(action_id)

    async def get(self, action_id: UUID, *, tenant_id: str | None = None) -> BulkAction:
        """Return an action, and how far it has come."""

        async def read(tx: Transaction) -> BulkAction:
            return await _get(tx, action_id, tenant_id)

        return await self._pool.retrying(read)

    async def list(
        self, *, tenant_id: str | None = None, after: str | None = None, limit: int = 100
    ) -> Listing[BulkAction]:
        """Return a page of actions, the newest first; they are kept for 90 days."""
        check_limit(limit)
        place = read_token(after, "id", None)

        async def read(tx: Transaction) -> builtins.list[BulkAction]:
            last = None if place is None else place[1]
            return await bulk_actions.read_page(tx, tenant_id, after=last, limit=limit + 1)

        found = await self._pool.reading(read)
        return cut_page(found, limit, lambda last: write_token("id", None, last.id))

    async def cancel(self, action_id: UUID, *, tenant_id: str | None = None) -> BulkAction:
        """Let an action go no further; what it has done stays."""

        async def change(tx: Transaction) -> BulkAction:
            action = await _get(tx, action_id, tenant_id)
            now = await self._clock.now(tx)
            if not await bulk_actions.cancel(tx, action_id, tenant_id, now=now):
                raise Conflict(action_id, "action", f"is {action.state} already")
            await self._record(tx, _entry(Action.BULK_CANCEL, action), now=now)
            return await _get(tx, action_id, tenant_id)

        return await self._change(change)

    def _check(self, request: BulkRequest) -> None:
        check_choice("action", request.action, VERBS[request.target])
        if request.reason is not None:
            check_text("reason", request.reason, characters=500)
        if isinstance(request.wanted, JobFilter):
            check_job_filter(request.wanted)
            acted_on = ACTED_ON[BulkVerb(request.action)]
            if request.wanted.status not in acted_on:
                shown = ", ".join(acted_on)
                raise Invalid("status", f"is missing or wrong; to {request.action}, name {shown}")
        else:
            check_listing(request.wanted, (), None)
        if request.action == BulkVerb.SET_INTERVAL and request.interval_seconds is not None:
            longest = self._settings.scheduler.max_overridden_interval_seconds
            check_interval(request.interval_seconds, longest)

    async def _find(self, tx: Transaction, request: BulkRequest) -> builtins.list[UUID]:
        stretch = walks.Stretch(None, None, MOST_COUNTED)
        if isinstance(request.wanted, JobFilter):
            now = await self._clock.now(tx)
            return await walks.next_jobs(tx, request.wanted, stretch, now=now)
        return await walks.next_connections(tx, request.wanted, stretch)

    def _build(
        self, request: BulkRequest, found: int, tenant_id: str | None, now: datetime
    ) -> BulkAction:
        return BulkAction(
            id=new_id(),
            tenant_id=tenant_id,
            target=request.target,
            action=BulkVerb(request.action),
            wanted=request.wanted,
            options=self._options(request),
            actor=self._actor.as_json(),
            expected=found,
            state=BulkState.RUNNING if found else BulkState.DONE,
            started_at=now,
            finished_at=None if found else now,
        )

    def _options(self, request: BulkRequest) -> dict[str, Any]:
        if request.action == BulkVerb.SET_INTERVAL:
            return {"interval_seconds": request.interval_seconds}
        if request.action != BulkVerb.PAUSE:
            return {}
        by = None if self._actor.is_application else self._actor.name
        given = {"reason": request.reason, "by": by}
        return {name: value for name, value in given.items() if value is not None}


async def _row(tx: Transaction, target: Target, id_: UUID) -> Connection | Job | None:
    if target is Target.JOBS:
        return await triggers.get(tx, id_, None)
    return await connections.get(tx, id_, None)


async def _get(tx: Transaction, action_id: UUID, tenant_id: str | None) -> BulkAction:
    found = await bulk_actions.get(tx, action_id, tenant_id)
    if found is None:
        raise NotFound("action", action_id)
    return found


def _entry(action: Action, one: BulkAction) -> Entry:
    return Entry(
        action,
        tenant_id=one.wanted.tenant_id,
        provider_slug=one.wanted.provider_slug,
        subject=f"{one.target}.{one.action}",
        after={
            "bulk_action": str(one.id),
            "filter": filter_as_json(one.wanted),
            "expected": one.expected,
            **one.options,
        },
    )
